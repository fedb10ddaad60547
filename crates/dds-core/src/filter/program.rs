//! A condition that is checked against a type, and its evaluation.
use super::error::{FilterError, FilterFault};
use super::lexer::RelOp;
use super::parser::{Condition, Literal, Operand, OperandPart};
use super::pattern::LikePattern;
use super::value::{FieldKind, Value, convert, enumeration, parameter};
use regex::Regex;
use spindle_xcdr::{DynamicType, FieldSet, FieldValue, TypeDescription};

/// The most parameters: `%0` to `%99`.
const PARAMETERS_MAX: usize = 100;

/// A condition over the fields of one type.
#[derive(Clone, Debug)]
pub(super) struct Program {
    root: Test,
    constants: Vec<Constant>,
    values: Vec<Resolved>,
}

#[derive(Clone, Debug)]
enum Test {
    Any(Vec<Test>),
    All(Vec<Test>),
    Not(Box<Test>),
    Compare(Slot, RelOp, Slot),
    Between(usize, bool, usize, usize),
    /// A field, and a constant that is a pattern.
    Pattern(usize, usize),
    Always,
}

#[derive(Clone, Copy, Debug)]
enum Slot {
    Field(usize),
    Constant(usize),
}

/// A literal or a parameter beside a field.
#[derive(Clone, Debug)]
struct Constant {
    column: usize,
    source: Source,
    field: usize,
    usage: Usage,
}

#[derive(Clone, Debug)]
enum Source {
    Literal(Literal),
    Parameter(u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Usage {
    Compare,
    Like,
    Match,
}

/// The value of a constant.
#[derive(Clone, Debug)]
enum Resolved {
    Value(Value<'static>),
    Like(LikePattern),
    Match(Regex),
}

impl Program {
    /// Checks a condition against a type. Its fields are added to `fields`.
    pub(super) fn new(
        of: &DynamicType,
        fields: &mut FieldSet,
        condition: Option<&Condition>,
        parameters: &[String],
    ) -> Result<Program, FilterError> {
        let mut check = Checker { of, fields, constants: Vec::new() };
        let root = match condition {
            Some(condition) => check.condition(condition)?,
            None => Test::Always,
        };
        let constants = check.constants;
        let values = resolve(of.description(), fields, &constants, parameters)?;
        Ok(Program { root, constants, values })
    }

    /// Changes the parameters. After an error the former ones stay.
    pub(super) fn set_parameters(
        &mut self,
        of: &DynamicType,
        fields: &FieldSet,
        parameters: &[String],
    ) -> Result<(), FilterError> {
        self.values = resolve(of.description(), fields, &self.constants, parameters)?;
        Ok(())
    }

    /// Evaluates the condition. A comparison with an absent field is neither true nor false.
    pub(super) fn holds(&self, fields: &[Option<FieldValue<'_>>]) -> bool {
        self.test(&self.root, fields) == Some(true)
    }

    fn test(&self, test: &Test, fields: &[Option<FieldValue<'_>>]) -> Option<bool> {
        match test {
            Test::Always => Some(true),
            Test::All(tests) => {
                let mut all = Some(true);
                for test in tests {
                    match self.test(test, fields) {
                        Some(false) => return Some(false),
                        None => all = None,
                        Some(true) => {}
                    }
                }
                all
            }
            Test::Any(tests) => {
                let mut any = Some(false);
                for test in tests {
                    match self.test(test, fields) {
                        Some(true) => return Some(true),
                        None => any = None,
                        Some(false) => {}
                    }
                }
                any
            }
            Test::Not(test) => self.test(test, fields).map(|holds| !holds),
            Test::Compare(left, operator, right) => {
                Some(self.value(*left, fields)?.relates(*operator, &self.value(*right, fields)?))
            }
            Test::Between(field, not, low, high) => {
                let value = self.value(Slot::Field(*field), fields)?;
                let low = self.value(Slot::Constant(*low), fields)?;
                let high = self.value(Slot::Constant(*high), fields)?;
                let within = value.relates(RelOp::GreaterOrEqual, &low) && value.relates(RelOp::LessOrEqual, &high);
                Some(within != *not)
            }
            Test::Pattern(field, pattern) => {
                let Some(FieldValue::String(text)) = &fields[*field] else { return None };
                match &self.values[*pattern] {
                    Resolved::Like(pattern) => Some(pattern.fits(text)),
                    Resolved::Match(pattern) => Some(pattern.is_match(text)),
                    Resolved::Value(_) => None,
                }
            }
        }
    }

    fn value<'a>(&'a self, slot: Slot, fields: &'a [Option<FieldValue<'_>>]) -> Option<Value<'a>> {
        match slot {
            Slot::Field(index) => fields[index].as_ref().map(Value::from),
            Slot::Constant(index) => match &self.values[index] {
                Resolved::Value(value) => Some(value.clone()),
                Resolved::Like(_) | Resolved::Match(_) => None,
            },
        }
    }
}

struct Checker<'a> {
    of: &'a DynamicType,
    fields: &'a mut FieldSet,
    constants: Vec<Constant>,
}

impl Checker<'_> {
    fn condition(&mut self, condition: &Condition) -> Result<Test, FilterError> {
        Ok(match condition {
            Condition::Any(parts) => Test::Any(self.conditions(parts)?),
            Condition::All(parts) => Test::All(self.conditions(parts)?),
            Condition::Not(inner) => Test::Not(Box::new(self.condition(inner)?)),
            Condition::Compare(left, operator, right) => self.compare(left, *operator, right)?,
            Condition::Between(value, not, low, high) => {
                let field = self.ordered(value, "BETWEEN")?;
                let low = self.constant(low, field, Usage::Compare);
                Test::Between(field, *not, low, self.constant(high, field, Usage::Compare))
            }
        })
    }

    fn conditions(&mut self, conditions: &[Condition]) -> Result<Vec<Test>, FilterError> {
        conditions.iter().map(|condition| self.condition(condition)).collect()
    }

    fn compare(&mut self, left: &Operand, operator: RelOp, right: &Operand) -> Result<Test, FilterError> {
        if let RelOp::Like | RelOp::Match = operator {
            return self.pattern(left, operator, right);
        }
        let field = |operand: &Operand| matches!(operand.part, OperandPart::Field(_));
        let is_order = !matches!(operator, RelOp::Equal | RelOp::NotEqual);
        let add = |check: &mut Self, operand| match is_order {
            true => check.ordered(operand, operator.name()),
            false => check.field(operand),
        };
        match (field(left), field(right)) {
            (true, true) => {
                let (own, other) = (add(self, left)?, add(self, right)?);
                if !self.kind(own).compares_with(self.kind(other)) {
                    let text = |index| (self.fields.path(index).to_owned(), type_name(self.of, self.fields, index));
                    let ((left_path, left_type), (right_path, right_type)) = (text(own), text(other));
                    let fault = FilterFault::Fields { left: left_path, right: right_path, left_type, right_type };
                    return Err(FilterError::new(left.column, fault));
                }
                Ok(Test::Compare(Slot::Field(own), operator, Slot::Field(other)))
            }
            (true, false) => {
                let field = add(self, left)?;
                let constant = self.constant(right, field, Usage::Compare);
                Ok(Test::Compare(Slot::Field(field), operator, Slot::Constant(constant)))
            }
            _ => {
                let field = add(self, right)?;
                let constant = self.constant(left, field, Usage::Compare);
                Ok(Test::Compare(Slot::Constant(constant), operator, Slot::Field(field)))
            }
        }
    }

    fn pattern(&mut self, left: &Operand, operator: RelOp, right: &Operand) -> Result<Test, FilterError> {
        let expected = |operand: &Operand, expected, found: &str| {
            let found = found.to_owned();
            Err(FilterError::new(operand.column, FilterFault::Expected { expected, found }))
        };
        if !matches!(left.part, OperandPart::Field(_)) {
            return expected(left, "a field before LIKE or MATCH", "a value");
        }
        if matches!(right.part, OperandPart::Field(_)) {
            return expected(right, "a pattern after LIKE or MATCH", "a field");
        }
        let field = self.field(left)?;
        if self.kind(field) != FieldKind::Text {
            return Err(self.operator(left, field, operator.name()));
        }
        let usage = if operator == RelOp::Like { Usage::Like } else { Usage::Match };
        Ok(Test::Pattern(field, self.constant(right, field, usage)))
    }

    fn kind(&self, field: usize) -> FieldKind {
        FieldKind::of(self.of.description(), self.fields.data_type(field))
    }

    fn operator(&self, operand: &Operand, field: usize, operator: &'static str) -> FilterError {
        let (path, of) = (self.fields.path(field).to_owned(), type_name(self.of, self.fields, field));
        FilterError::new(operand.column, FilterFault::Operator { operator, path, of })
    }

    /// Adds a field whose values have an order.
    fn ordered(&mut self, operand: &Operand, operator: &'static str) -> Result<usize, FilterError> {
        let field = self.field(operand)?;
        if self.kind(field) == FieldKind::Boolean {
            return Err(self.operator(operand, field, operator));
        }
        Ok(field)
    }

    fn field(&mut self, operand: &Operand) -> Result<usize, FilterError> {
        add_field(self.of, self.fields, operand)
    }

    fn constant(&mut self, operand: &Operand, field: usize, usage: Usage) -> usize {
        let source = match &operand.part {
            OperandPart::Parameter(number) => Source::Parameter(*number),
            OperandPart::Literal(literal) => Source::Literal(literal.clone()),
            // The grammar has no field in the place of a value.
            OperandPart::Field(name) => Source::Literal(Literal::Text(name.clone())),
        };
        self.constants.push(Constant { column: operand.column, source, field, usage });
        self.constants.len() - 1
    }
}

/// Adds the field of an operand, and returns its index.
pub(super) fn add_field(of: &DynamicType, fields: &mut FieldSet, operand: &Operand) -> Result<usize, FilterError> {
    let OperandPart::Field(path) = &operand.part else {
        return Err(FilterError::new(operand.column, FilterFault::NoField));
    };
    fields.add(of, path).map_err(|error| {
        let before = path.get(..error.offset).map_or(0, |text| text.chars().count());
        FilterError::new(operand.column + before, FilterFault::Field { path: error.path, fault: error.fault })
    })
}

fn type_name(of: &DynamicType, fields: &FieldSet, field: usize) -> String {
    of.description().name_of(fields.data_type(field)).to_string()
}

/// Returns the values of all constants.
fn resolve(
    types: &TypeDescription,
    fields: &FieldSet,
    constants: &[Constant],
    parameters: &[String],
) -> Result<Vec<Resolved>, FilterError> {
    if parameters.len() > PARAMETERS_MAX {
        return Err(FilterError::new(1, FilterFault::TooMany { given: parameters.len() }));
    }
    constants.iter().map(|constant| resolve_one(types, fields, constant, parameters)).collect()
}

fn resolve_one(
    types: &TypeDescription,
    fields: &FieldSet,
    constant: &Constant,
    parameters: &[String],
) -> Result<Resolved, FilterError> {
    let data = fields.data_type(constant.field);
    let kind = FieldKind::of(types, data);
    let name = types.name_of(data).to_string();
    let number = match &constant.source {
        Source::Parameter(number) => Some(*number),
        Source::Literal(_) => None,
    };
    let error = |fault| FilterError { column: constant.column, parameter: number, fault };
    let literal = match &constant.source {
        Source::Literal(literal) => literal.clone(),
        Source::Parameter(number) => match parameters.get(usize::from(*number)) {
            Some(text) => parameter(text, kind),
            None => return Err(error(FilterFault::Missing { number: *number, given: parameters.len() })),
        },
    };
    let literals = enumeration(types, data).map(|own| (name.as_str(), own));
    let value = convert(&literal, kind, literals).map_err(error)?;
    let Some(value) = value else {
        let (path, value) = (fields.path(constant.field).to_owned(), shown(&literal));
        return Err(error(FilterFault::Value { value, path, of: name }));
    };
    match (constant.usage, value) {
        (Usage::Like, Value::Text(text)) => Ok(Resolved::Like(LikePattern::new(&text))),
        (Usage::Match, Value::Text(text)) => match whole(&text) {
            Ok(pattern) => Ok(Resolved::Match(pattern)),
            Err(cause) => Err(error(FilterFault::Pattern(cause.to_string()))),
        },
        (_, value) => Ok(Resolved::Value(value)),
    }
}

/// Makes a regular expression that matches whole texts.
fn whole(text: &str) -> Result<Regex, regex::Error> {
    // By itself it must be one: `a)|(b` would close the group below, and match parts of texts.
    Regex::new(text)?;
    // In the verbose mode a comment takes the end of the group along, unless its line ends before.
    Regex::new(&format!("^(?:{text})$")).or_else(|_| Regex::new(&format!("^(?:{text}\n)$")))
}

fn shown(literal: &Literal) -> String {
    match literal {
        Literal::Integer(value) => value.to_string(),
        Literal::Float(value) => value.to_string(),
        Literal::Text(text) => format!("'{text}'"),
        Literal::Boolean(value) => if *value { "TRUE" } else { "FALSE" }.to_owned(),
    }
}
