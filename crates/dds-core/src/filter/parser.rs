//! The grammar of conditions (DDS annex B), by recursive descent.
//!
//! ```text
//! Query      ::= [Condition] ["ORDER" "BY" FIELD {"," FIELD}]
//! Condition  ::= Conjunct {"OR" Conjunct}
//! Conjunct   ::= Negation {"AND" Negation}
//! Negation   ::= "NOT" Negation | "(" Condition ")" | Predicate
//! Predicate  ::= Operand RelOp Operand | FIELD ["NOT"] "BETWEEN" Value "AND" Value
//! Operand    ::= FIELD | Value
//! Value      ::= INTEGER | HEX | FLOAT | TEXT | "TRUE" | "FALSE" | %0 .. %99
//! ```
//!
//! A keyword in the place of an operand is the name of a field, if the token after it may follow a field:
//! `order > 3 AND by = 2`. ORDER BY at the start of a query begins the order.
use super::error::{FilterError, FilterFault};
use super::lexer::{RelOp, Token, tokens};

/// The levels of parentheses and NOT.
const DEPTH_MAX: usize = 64;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Condition {
    Any(Vec<Condition>),
    All(Vec<Condition>),
    Not(Box<Condition>),
    Compare(Operand, RelOp, Operand),
    /// Whether the value is within two others, bounds included; negated if the flag is set.
    Between(Operand, bool, Operand, Operand),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Operand {
    pub(super) column: usize,
    pub(super) part: OperandPart,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum OperandPart {
    Field(String),
    Literal(Literal),
    Parameter(u8),
}

/// A value of an expression, or of a parameter.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Literal {
    Integer(i128),
    Float(f64),
    Text(String),
    Boolean(bool),
}

/// An expression with the fields of its ORDER BY.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct QuerySyntax {
    pub(super) condition: Option<Condition>,
    pub(super) order_by: Vec<Operand>,
}

/// Parses the expression of a content-filtered topic.
pub(super) fn parse_filter(expression: &str) -> Result<Condition, FilterError> {
    let tokens = tokens(expression)?;
    let mut parser = Parser { expression, tokens: &tokens, at: 0, depth: 0 };
    let condition = parser.condition()?;
    parser.end("AND, OR or the end")?;
    Ok(condition)
}

/// Parses the expression of a query condition.
pub(super) fn parse_query(expression: &str) -> Result<QuerySyntax, FilterError> {
    let tokens = tokens(expression)?;
    let mut parser = Parser { expression, tokens: &tokens, at: 0, depth: 0 };
    let condition = match parser.peek() {
        Token::End => None,
        Token::Order if *parser.ahead(1) == Token::By => None,
        _ => Some(parser.condition()?),
    };
    let mut order_by = Vec::new();
    if parser.take_if(&Token::Order) {
        parser.expect(&Token::By, "BY")?;
        order_by.push(parser.field()?);
        while parser.take_if(&Token::Comma) {
            order_by.push(parser.field()?);
        }
        parser.end("`,` or the end")?;
    }
    parser.end("AND, OR, ORDER BY or the end")?;
    Ok(QuerySyntax { condition, order_by })
}

struct Parser<'a> {
    expression: &'a str,
    tokens: &'a [(usize, Token)],
    at: usize,
    depth: usize,
}

impl Parser<'_> {
    fn peek(&self) -> &Token {
        &self.tokens[self.at].1
    }

    /// Returns a token that follows the next one.
    fn ahead(&self, count: usize) -> &Token {
        &self.tokens[(self.at + count).min(self.tokens.len() - 1)].1
    }

    fn column(&self) -> usize {
        self.tokens[self.at].0
    }

    /// Advances to the next token. The last one, the end, stays.
    fn advance(&mut self) {
        self.at = (self.at + 1).min(self.tokens.len() - 1);
    }

    fn take_if(&mut self, token: &Token) -> bool {
        let found = self.peek() == token;
        if found {
            self.advance();
        }
        found
    }

    fn expected<T>(&self, expected: &'static str) -> Result<T, FilterError> {
        let found = self.peek().to_string();
        Err(FilterError::new(self.column(), FilterFault::Expected { expected, found }))
    }

    fn expect(&mut self, token: &Token, expected: &'static str) -> Result<(), FilterError> {
        if self.take_if(token) { Ok(()) } else { self.expected(expected) }
    }

    fn end(&self, expected: &'static str) -> Result<(), FilterError> {
        if *self.peek() == Token::End { Ok(()) } else { self.expected(expected) }
    }

    fn condition(&mut self) -> Result<Condition, FilterError> {
        let mut parts = vec![self.conjunct()?];
        while self.take_if(&Token::Or) {
            parts.push(self.conjunct()?);
        }
        Ok(single(parts, Condition::Any))
    }

    fn conjunct(&mut self) -> Result<Condition, FilterError> {
        let mut parts = vec![self.negation()?];
        while self.take_if(&Token::And) {
            parts.push(self.negation()?);
        }
        Ok(single(parts, Condition::All))
    }

    fn negation(&mut self) -> Result<Condition, FilterError> {
        if self.depth == DEPTH_MAX {
            return Err(FilterError::new(self.column(), FilterFault::TooDeep { limit: DEPTH_MAX }));
        }
        self.depth += 1;
        let condition = if *self.peek() == Token::Not && !self.is_field_not() {
            self.advance();
            Condition::Not(Box::new(self.negation()?))
        } else if self.take_if(&Token::Open) {
            let condition = self.condition()?;
            self.expect(&Token::Close, "`)`, AND or OR")?;
            condition
        } else {
            self.predicate()?
        };
        self.depth -= 1;
        Ok(condition)
    }

    /// Returns whether NOT is the name of a field here: an operator follows. That may be a field, too, before
    /// another operator, and then NOT is a negation.
    fn is_field_not(&self) -> bool {
        let after = self.ahead(1);
        let is_field = after.keyword().is_some() && starts_relation(self.ahead(2));
        starts_relation(after) && *after != Token::Not && !is_field
    }

    /// Returns whether the next token is a keyword that is the name of a field here.
    fn is_word(&self) -> bool {
        let after = self.ahead(1);
        let ends = matches!(after, Token::And | Token::Or | Token::Close | Token::Comma | Token::Order | Token::End);
        self.peek().keyword().is_some() && (ends || starts_relation(after))
    }

    fn predicate(&mut self) -> Result<Condition, FilterError> {
        let left = self.operand("a field, a value, NOT or `(`")?;
        let not = self.take_if(&Token::Not);
        if let Token::Operator(operator) = *self.peek()
            && !not
        {
            self.advance();
            let right = self.operand("a field or a value")?;
            let fields = [&left, &right].map(|side| matches!(side.part, OperandPart::Field(_)));
            return match fields {
                [false, false] => Err(FilterError::new(left.column, FilterFault::NoField)),
                _ => Ok(Condition::Compare(left, operator, right)),
            };
        }
        self.expect(&Token::Between, if not { "BETWEEN" } else { "an operator or BETWEEN" })?;
        if !matches!(left.part, OperandPart::Field(_)) {
            return Err(FilterError::new(left.column, FilterFault::NoField));
        }
        let low = self.value()?;
        self.expect(&Token::And, "AND")?;
        Ok(Condition::Between(left, not, low, self.value()?))
    }

    fn value(&mut self) -> Result<Operand, FilterError> {
        match self.peek() {
            Token::Field(_) => self.expected("a value"),
            _ if self.is_word() => self.expected("a value"),
            _ => self.operand("a value"),
        }
    }

    fn field(&mut self) -> Result<Operand, FilterError> {
        match self.peek() {
            Token::Field(_) => self.operand("a field"),
            _ if self.is_word() => self.operand("a field"),
            _ => self.expected("a field"),
        }
    }

    /// Returns the text of a keyword, as the expression has it.
    fn word(&self, keyword: &Token) -> String {
        let length = keyword.keyword().map_or(0, str::len);
        self.expression.chars().skip(self.column() - 1).take(length).collect()
    }

    fn operand(&mut self, expected: &'static str) -> Result<Operand, FilterError> {
        let part = match self.peek().clone() {
            Token::Field(name) => OperandPart::Field(name),
            token if self.is_word() => OperandPart::Field(self.word(&token)),
            Token::Integer(value) => OperandPart::Literal(Literal::Integer(value)),
            Token::Float(value) => OperandPart::Literal(Literal::Float(value)),
            Token::Text(text) => OperandPart::Literal(Literal::Text(text)),
            Token::Boolean(value) => OperandPart::Literal(Literal::Boolean(value)),
            Token::Parameter(number) => OperandPart::Parameter(number),
            _ => return self.expected(expected),
        };
        let column = self.column();
        self.advance();
        Ok(Operand { column, part })
    }
}

/// Returns whether a token may follow the field of a predicate.
fn starts_relation(token: &Token) -> bool {
    matches!(token, Token::Operator(_) | Token::Between | Token::Not)
}

fn single(mut parts: Vec<Condition>, of: fn(Vec<Condition>) -> Condition) -> Condition {
    if parts.len() > 1 { of(parts) } else { parts.remove(0) }
}
