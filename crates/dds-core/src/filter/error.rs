//! Errors of filter expressions. Each has the column at which the mistake is.
use spindle_xcdr::FieldFault;
use std::fmt;

/// An expression or a parameter that is no filter of the type.
#[derive(Clone, Debug, PartialEq)]
pub struct FilterError {
    /// The column, counted in characters from 1.
    pub column: usize,
    /// The parameter that is wrong, if the expression itself is right.
    pub parameter: Option<u8>,
    /// The mistake.
    pub fault: FilterFault,
}

impl FilterError {
    pub(super) fn new(column: usize, fault: FilterFault) -> FilterError {
        FilterError { column, parameter: None, fault }
    }
}

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.parameter {
            Some(number) => write!(f, "parameter %{number}, used in column {}: {}", self.column, self.fault),
            None => write!(f, "filter expression, column {}: {}", self.column, self.fault),
        }
    }
}

impl std::error::Error for FilterError {}

impl From<FilterError> for crate::DdsError {
    fn from(error: FilterError) -> crate::DdsError {
        crate::DdsError::BadParameter(error.to_string())
    }
}

/// The mistake in an expression.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum FilterFault {
    /// A character starts no part of an expression.
    #[error("`{0}` starts no field, value or operator")]
    Character(char),
    /// A text has no end.
    #[error("the text has no closing quote `'`")]
    Unterminated,
    /// A number is invalid or too large.
    #[error("`{0}` is no number")]
    Number(String),
    /// A parameter has another number than 0 to 99.
    #[error("`%{0}` is no parameter: %0 to %99 are")]
    ParameterNumber(String),
    /// Another part is expected.
    #[error("{expected} is expected, and {found} is found")]
    Expected {
        /// The part that may stand here.
        expected: &'static str,
        /// The part that stands here.
        found: String,
    },
    /// A comparison has no field on either side.
    #[error("a comparison has a field on one side at least")]
    NoField,
    /// Parentheses and NOT contain each other too deeply.
    #[error("conditions contain each other {limit} levels deep, which is the limit; simplify the expression")]
    TooDeep {
        /// The limit.
        limit: usize,
    },
    /// The expression is too long.
    #[error("the expression has {length} bytes, and the limit is {limit}")]
    TooLong {
        /// Its length in bytes.
        length: usize,
        /// The limit.
        limit: usize,
    },
    /// The type has no such field.
    #[error("field `{path}`: {fault}")]
    Field {
        /// The path.
        path: String,
        /// The mistake in the path.
        fault: FieldFault,
    },
    /// A value can't be compared with the field.
    #[error("{value} can't be compared with field `{path}` of type {of}")]
    Value {
        /// The value.
        value: String,
        /// The path of the field.
        path: String,
        /// The type of the field.
        of: String,
    },
    /// An enumeration lacks a literal.
    #[error("{of} has no literal `{name}`; it has {literals}")]
    Literal {
        /// The enumeration.
        of: String,
        /// The name.
        name: String,
        /// Its literals.
        literals: String,
    },
    /// Two fields can't be compared.
    #[error("fields `{left}` and `{right}` have types that can't be compared: {left_type} and {right_type}")]
    Fields {
        /// The path of the left field.
        left: String,
        /// The path of the right field.
        right: String,
        /// The type of the left field.
        left_type: String,
        /// The type of the right field.
        right_type: String,
    },
    /// An operator does not apply to the type of the field.
    #[error("{operator} does not apply to field `{path}` of type {of}")]
    Operator {
        /// The operator.
        operator: &'static str,
        /// The path of the field.
        path: String,
        /// The type of the field.
        of: String,
    },
    /// A regular expression is invalid.
    #[error("the regular expression is invalid: {0}")]
    Pattern(String),
    /// A parameter was not given.
    #[error("it is used, and {given} parameters are given; give {} or more", .number + 1)]
    Missing {
        /// The number of the parameter.
        number: u8,
        /// The parameters that were given.
        given: usize,
    },
    /// Too many parameters were given.
    #[error("{given} parameters are given, and there are at most 100")]
    TooMany {
        /// The parameters that were given.
        given: usize,
    },
}
