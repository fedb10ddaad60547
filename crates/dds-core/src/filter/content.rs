//! The filter of a content-filtered topic, and the query of a query condition.
use super::error::FilterError;
use super::parser::{QuerySyntax, parse_filter, parse_query};
use super::program::{Program, add_field};
use super::value::Value;
use spindle_xcdr::{CdrReadError, DynamicType, FieldSet, FieldValue};
use std::cmp::Ordering;
use std::sync::Arc;

/// An expression that is checked against a type.
#[derive(Clone, Debug)]
struct Checked {
    of: Arc<DynamicType>,
    expression: String,
    parameters: Vec<String>,
    fields: FieldSet,
    program: Program,
    order_by: Vec<usize>,
}

impl Checked {
    fn new<S: AsRef<str>>(
        of: Arc<DynamicType>,
        expression: &str,
        syntax: &QuerySyntax,
        parameters: &[S],
    ) -> Result<Checked, FilterError> {
        let (parameters, mut fields) = (owned(parameters), FieldSet::default());
        let program = Program::new(&of, &mut fields, syntax.condition.as_ref(), &parameters)?;
        let order_by = syntax.order_by.iter().map(|field| add_field(&of, &mut fields, field));
        let order_by = order_by.collect::<Result<_, _>>()?;
        Ok(Checked { of, expression: expression.to_owned(), parameters, fields, program, order_by })
    }

    fn set_parameters<S: AsRef<str>>(&mut self, parameters: &[S]) -> Result<(), FilterError> {
        let parameters = owned(parameters);
        self.program.set_parameters(&self.of, &self.fields, &parameters)?;
        self.parameters = parameters;
        Ok(())
    }

    /// Returns the fields of a sample, or `None` if it does not pass.
    fn select<'s>(&self, sample: &'s [u8], key: bool) -> Result<Option<Vec<Option<FieldValue<'s>>>>, CdrReadError> {
        let mut values = Vec::new();
        self.fields.read(&self.of, sample, key, &mut values)?;
        Ok(self.program.holds(&values).then_some(values))
    }
}

/// The filter of a content-filtered topic (DDS 2.2.2.3.3).
#[derive(Clone, Debug)]
pub struct ContentFilter(Checked);

impl ContentFilter {
    /// Makes a filter of samples of a type.
    ///
    /// # Errors
    /// [`FilterError`] with the column, if the expression or a parameter does not fit the type.
    pub fn new<S: AsRef<str>>(
        of: Arc<DynamicType>,
        expression: &str,
        parameters: &[S],
    ) -> Result<ContentFilter, FilterError> {
        let syntax = QuerySyntax { condition: Some(parse_filter(expression)?), order_by: Vec::new() };
        Checked::new(of, expression, &syntax, parameters).map(ContentFilter)
    }

    /// Returns the expression, which never changes.
    pub fn expression(&self) -> &str {
        &self.0.expression
    }

    /// Returns the parameters.
    pub fn parameters(&self) -> &[String] {
        &self.0.parameters
    }

    /// Changes the parameters: `set_expression_parameters` (DDS 2.2.2.3.3.3).
    ///
    /// # Errors
    /// As [`ContentFilter::new`]. The former parameters stay.
    pub fn set_parameters<S: AsRef<str>>(&mut self, parameters: &[S]) -> Result<(), FilterError> {
        self.0.set_parameters(parameters)
    }

    /// Returns whether the expression has fields of the key only.
    pub fn is_key_only(&self) -> bool {
        self.0.fields.is_key()
    }

    /// Returns whether a serialised sample passes; with `key`, the sample has the key only.
    ///
    /// # Errors
    /// [`CdrReadError`] if the sample is not of the type.
    pub fn passes(&self, sample: &[u8], key: bool) -> Result<bool, CdrReadError> {
        Ok(self.0.select(sample, key)?.is_some())
    }
}

/// The query of a query condition (DDS 2.2.2.5.9): a filter of samples in the cache, and their order.
#[derive(Clone, Debug)]
pub struct Query(Checked);

/// The place of a sample in the order of a query. Absent fields come first, NaN last.
#[derive(Clone, Debug)]
pub struct SortKey(Vec<Option<Value<'static>>>);

impl Query {
    /// Makes a query of samples of a type. The expression may be empty, or an ORDER BY only.
    ///
    /// # Errors
    /// As [`ContentFilter::new`].
    pub fn new<S: AsRef<str>>(of: Arc<DynamicType>, expression: &str, parameters: &[S]) -> Result<Query, FilterError> {
        Checked::new(of, expression, &parse_query(expression)?, parameters).map(Query)
    }

    /// Returns the expression, which never changes.
    pub fn expression(&self) -> &str {
        &self.0.expression
    }

    /// Returns the parameters.
    pub fn parameters(&self) -> &[String] {
        &self.0.parameters
    }

    /// Changes the parameters: `set_query_parameters` (DDS 2.2.2.5.9.3).
    ///
    /// # Errors
    /// As [`Query::new`]. The former parameters stay.
    pub fn set_parameters<S: AsRef<str>>(&mut self, parameters: &[S]) -> Result<(), FilterError> {
        self.0.set_parameters(parameters)
    }

    /// Returns whether the query has an ORDER BY.
    pub fn is_ordered(&self) -> bool {
        !self.0.order_by.is_empty()
    }

    /// Returns the place of a serialised sample in the order, or `None` if it does not pass. With `key`,
    /// the sample has the key only.
    ///
    /// # Errors
    /// [`CdrReadError`] if the sample is not of the type.
    pub fn select(&self, sample: &[u8], key: bool) -> Result<Option<SortKey>, CdrReadError> {
        let Some(values) = self.0.select(sample, key)? else { return Ok(None) };
        let place = |field: &usize| values[*field].as_ref().map(|value| Value::from(value).into_owned());
        Ok(Some(SortKey(self.0.order_by.iter().map(place).collect())))
    }
}

impl Ord for SortKey {
    fn cmp(&self, other: &SortKey) -> Ordering {
        let parts = self.0.iter().zip(&other.0).map(|(left, right)| match (left, right) {
            (Some(Value::Float(left)), Some(Value::Float(right))) => left.total_cmp(right),
            (Some(left), Some(right)) => left.order(right).unwrap_or(Ordering::Equal),
            (left, right) => left.is_some().cmp(&right.is_some()),
        });
        parts.fold(Ordering::Equal, Ordering::then)
    }
}

impl PartialOrd for SortKey {
    fn partial_cmp(&self, other: &SortKey) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for SortKey {
    fn eq(&self, other: &SortKey) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for SortKey {}

fn owned<S: AsRef<str>>(parameters: &[S]) -> Vec<String> {
    parameters.iter().map(|text| text.as_ref().to_owned()).collect()
}
