//! Splits an expression into tokens.
use super::error::{FilterError, FilterFault};
use std::fmt;

/// The longest expression, in bytes.
const LENGTH_MAX: usize = 1 << 16;

/// A relation of two values, or of a text and a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RelOp {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Like,
    Match,
}

impl RelOp {
    pub(super) const fn name(self) -> &'static str {
        match self {
            RelOp::Equal => "=",
            RelOp::NotEqual => "<>",
            RelOp::Less => "<",
            RelOp::LessOrEqual => "<=",
            RelOp::Greater => ">",
            RelOp::GreaterOrEqual => ">=",
            RelOp::Like => "LIKE",
            RelOp::Match => "MATCH",
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    Field(String),
    Integer(i128),
    Float(f64),
    Text(String),
    Boolean(bool),
    Parameter(u8),
    Operator(RelOp),
    Open,
    Close,
    Comma,
    And,
    Or,
    Not,
    Between,
    Order,
    By,
    End,
}

impl Token {
    /// Returns the name of a keyword that may be the name of a field, too.
    pub(super) const fn keyword(&self) -> Option<&'static str> {
        match self {
            Token::And => Some("AND"),
            Token::Or => Some("OR"),
            Token::Not => Some("NOT"),
            Token::Between => Some("BETWEEN"),
            Token::Order => Some("ORDER"),
            Token::By => Some("BY"),
            Token::Operator(RelOp::Like) => Some("LIKE"),
            Token::Operator(RelOp::Match) => Some("MATCH"),
            _ => None,
        }
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Token::Field(name) => write!(f, "`{name}`"),
            Token::Integer(value) => write!(f, "`{value}`"),
            Token::Float(value) => write!(f, "`{value}`"),
            Token::Text(text) => write!(f, "`'{text}'`"),
            Token::Boolean(value) => write!(f, "`{}`", if *value { "TRUE" } else { "FALSE" }),
            Token::Parameter(number) => write!(f, "`%{number}`"),
            Token::Operator(operator) => write!(f, "`{}`", operator.name()),
            Token::Open => f.write_str("`(`"),
            Token::Close => f.write_str("`)`"),
            Token::Comma => f.write_str("`,`"),
            Token::And => f.write_str("`AND`"),
            Token::Or => f.write_str("`OR`"),
            Token::Not => f.write_str("`NOT`"),
            Token::Between => f.write_str("`BETWEEN`"),
            Token::Order => f.write_str("`ORDER`"),
            Token::By => f.write_str("`BY`"),
            Token::End => f.write_str("the end of the expression"),
        }
    }
}

/// Returns the tokens with their columns. The last one is [`Token::End`].
pub(super) fn tokens(expression: &str) -> Result<Vec<(usize, Token)>, FilterError> {
    if expression.len() > LENGTH_MAX {
        let fault = FilterFault::TooLong { length: expression.len(), limit: LENGTH_MAX };
        return Err(FilterError::new(1, fault));
    }
    let chars: Vec<char> = expression.chars().collect();
    let mut lexer = Lexer { chars: &chars, at: 0 };
    let mut tokens = Vec::new();
    loop {
        lexer.take_while(char::is_whitespace);
        let column = lexer.at + 1;
        let token = lexer.token().map_err(|fault| FilterError::new(column, fault))?;
        let is_end = token == Token::End;
        tokens.push((column, token));
        if is_end {
            return Ok(tokens);
        }
    }
}

struct Lexer<'a> {
    chars: &'a [char],
    at: usize,
}

impl Lexer<'_> {
    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    fn take_if(&mut self, char: char) -> bool {
        let found = self.peek() == Some(char);
        self.at += usize::from(found);
        found
    }

    fn take_while(&mut self, mut admits: impl FnMut(char) -> bool) -> String {
        let start = self.at;
        while self.peek().is_some_and(&mut admits) {
            self.at += 1;
        }
        self.chars[start..self.at].iter().collect()
    }

    fn token(&mut self) -> Result<Token, FilterFault> {
        let Some(char) = self.peek() else { return Ok(Token::End) };
        if char.is_alphabetic() || char == '_' {
            return Ok(word(self.take_while(|char| char.is_alphanumeric() || "_.[]".contains(char))));
        }
        if char.is_ascii_digit() || "+-.".contains(char) {
            let (mut before, start) = (' ', self.at);
            let text = self.take_while(|char| {
                // A sign belongs to the number at its start and after an exponent.
                let sign = "+-".contains(char) && (before == ' ' || "eE".contains(before));
                before = char;
                char.is_ascii_alphanumeric() || char == '.' || sign
            });
            // A sign after a hexadecimal `e` would start the next number.
            debug_assert!(self.at > start);
            return number(&text).ok_or(FilterFault::Number(text));
        }
        self.at += 1;
        Ok(match char {
            '\'' | '`' => return self.text(),
            '%' => return parameter(self.take_while(|char| char.is_ascii_alphanumeric())),
            '(' => Token::Open,
            ')' => Token::Close,
            ',' => Token::Comma,
            '=' => Token::Operator(RelOp::Equal),
            '<' if self.take_if('=') => Token::Operator(RelOp::LessOrEqual),
            '<' if self.take_if('>') => Token::Operator(RelOp::NotEqual),
            '<' => Token::Operator(RelOp::Less),
            '>' if self.take_if('=') => Token::Operator(RelOp::GreaterOrEqual),
            '>' => Token::Operator(RelOp::Greater),
            '!' if self.take_if('=') => Token::Operator(RelOp::NotEqual),
            other => return Err(FilterFault::Character(other)),
        })
    }

    /// Reads a text up to its closing quote. Two quotes within it are one.
    fn text(&mut self) -> Result<Token, FilterFault> {
        let mut text = String::new();
        loop {
            text.push_str(&self.take_while(|char| char != '\'' && char != '\n'));
            if !self.take_if('\'') {
                return Err(FilterFault::Unterminated);
            }
            if !self.take_if('\'') {
                return Ok(Token::Text(text));
            }
            text.push('\'');
        }
    }
}

fn word(text: String) -> Token {
    match text.to_ascii_uppercase().as_str() {
        "AND" => Token::And,
        "OR" => Token::Or,
        "NOT" => Token::Not,
        "BETWEEN" => Token::Between,
        "LIKE" => Token::Operator(RelOp::Like),
        "MATCH" => Token::Operator(RelOp::Match),
        "ORDER" => Token::Order,
        "BY" => Token::By,
        "TRUE" => Token::Boolean(true),
        "FALSE" => Token::Boolean(false),
        _ => Token::Field(text),
    }
}

fn parameter(digits: String) -> Result<Token, FilterFault> {
    match digits.parse() {
        Ok(number @ 0..=99) if digits.len() <= 2 => Ok(Token::Parameter(number)),
        _ => Err(FilterFault::ParameterNumber(digits)),
    }
}

/// Reads an integer, a hexadecimal integer or a floating-point number, each with an optional sign.
pub(super) fn number(text: &str) -> Option<Token> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if !digits.starts_with(|char: char| char.is_ascii_digit() || char == '.') {
        return None;
    }
    let hex = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"));
    let integer = match hex {
        Some(hex) => u64::from_str_radix(hex, 16).ok().filter(|_| !hex.starts_with('+')),
        None if digits.bytes().all(|byte| byte.is_ascii_digit()) => digits.parse().ok(),
        None => {
            let float: f64 = digits.parse().ok().filter(|float: &f64| float.is_finite())?;
            return Some(Token::Float(if negative { -float } else { float }));
        }
    };
    let integer = i128::from(integer?);
    Some(Token::Integer(if negative { -integer } else { integer }))
}
