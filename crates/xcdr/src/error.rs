//! The errors of encoding and decoding. Each names the member, and a decoder's error the byte.
use crate::format::Extensibility;
use std::borrow::Cow;
use std::fmt;

/// The path to the member in which an error happened, innermost step first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MemberPath(Vec<Cow<'static, str>>);

impl MemberPath {
    pub(crate) fn push(&mut self, step: Cow<'static, str>) {
        self.0.push(step);
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for step in self.0.iter().rev() {
            if !text.is_empty() && !step.starts_with('[') {
                text.push('.');
            }
            text.push_str(step);
        }
        text
    }
}

/// A value that has no encoding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CdrWriteError(Box<(WriteFault, MemberPath)>);

impl CdrWriteError {
    /// Makes an error without a path.
    pub fn new(fault: WriteFault) -> CdrWriteError {
        CdrWriteError(Box::new((fault, MemberPath::default())))
    }

    /// Adds the name of the member that contains the place of the error.
    #[must_use]
    pub fn at(mut self, member: impl Into<Cow<'static, str>>) -> CdrWriteError {
        self.0.1.push(member.into());
        self
    }

    /// Adds the index of the element that contains the place of the error.
    #[must_use]
    pub fn at_index(self, index: usize) -> CdrWriteError {
        self.at(format!("[{index}]"))
    }

    /// Returns the cause.
    pub fn fault(&self) -> &WriteFault {
        &self.0.0
    }

    /// Returns the path to the member, such as `points[3].x`; empty if it is the value itself.
    pub fn member(&self) -> String {
        self.0.1.text()
    }
}

impl fmt::Display for CdrWriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.member() {
            member if member.is_empty() => write!(f, "the value has no encoding: {}", self.fault()),
            member => write!(f, "member {member} has no encoding: {}", self.fault()),
        }
    }
}

impl std::error::Error for CdrWriteError {}

/// The cause of a [`CdrWriteError`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WriteFault {
    /// A string, sequence or map is longer than its bound.
    #[error("it has {length} elements, and its bound is {bound}; shorten it, or raise the bound in the type")]
    Bound {
        /// Its length: bytes of a string, else elements.
        length: u64,
        /// The bound of the type.
        bound: u32,
    },
    /// A length does not fit into 32 bits.
    #[error("its length is {length}, and the encoding has 32 bits for a length; split the value")]
    Length {
        /// The length.
        length: u64,
    },
    /// A string contains a NUL, which ends a string in XCDR.
    #[error("it contains a NUL at byte {at}, which ends a string; use a sequence of bytes")]
    Nul {
        /// The index of the byte.
        at: usize,
    },
    /// The discriminator of a union does not select the member that the union holds.
    #[error("discriminator {value} does not select the member of {union}; use a label of that member")]
    Discriminator {
        /// The name of the union.
        union: String,
        /// The discriminator.
        value: i64,
    },
    /// Types contain each other more deeply than [`DEPTH_MAX`](crate::DEPTH_MAX).
    #[error("values contain each other {limit} levels deep, which is the limit; flatten the value")]
    TooDeep {
        /// The limit.
        limit: u16,
    },
    /// Dynamic data is not of the type that it is encoded as.
    #[error("it is {got}, and its type is {expected}; build it from the type")]
    Kind {
        /// The type.
        expected: String,
        /// The kind of the value.
        got: &'static str,
    },
    /// Dynamic data lacks a member that is not optional.
    #[error("it is missing and not optional; set it")]
    Missing,
    /// A member of dynamic data that its type lacks.
    #[error("type {of} has no such member; remove it, or use the newer type")]
    NoSuchMember {
        /// The name of the type.
        of: String,
    },
    /// An enumerated value that its type lacks.
    #[error("{value} is no literal of {of}")]
    Literal {
        /// The name of the type.
        of: String,
        /// The value.
        value: i64,
    },
    /// The representation can't express the value.
    #[error("{0}")]
    Unsupported(&'static str),
}

/// Bytes that are no encoding of the type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CdrReadError(Box<(ReadFault, u64, MemberPath)>);

impl CdrReadError {
    /// Makes an error at a byte, counted from the start of the input, with the encapsulation header.
    pub fn new(fault: ReadFault, offset: usize) -> CdrReadError {
        CdrReadError(Box::new((fault, offset as u64, MemberPath::default())))
    }

    /// Adds the name of the member that contains the place of the error.
    #[must_use]
    pub fn at(mut self, member: impl Into<Cow<'static, str>>) -> CdrReadError {
        self.0.2.push(member.into());
        self
    }

    /// Adds the index of the element that contains the place of the error.
    #[must_use]
    pub fn at_index(self, index: usize) -> CdrReadError {
        self.at(format!("[{index}]"))
    }

    /// Returns the cause.
    pub fn fault(&self) -> &ReadFault {
        &self.0.0
    }

    /// Returns the index of the byte at which decoding stopped.
    pub fn offset(&self) -> u64 {
        self.0.1
    }

    /// Returns the path to the member, such as `points[3].x`; empty if it is the value itself.
    pub fn member(&self) -> String {
        self.0.2.text()
    }
}

impl fmt::Display for CdrReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.member() {
            member if member.is_empty() => write!(f, "decoding failed at byte {}: {}", self.offset(), self.fault()),
            member => write!(f, "decoding failed at byte {}, member {member}: {}", self.offset(), self.fault()),
        }
    }
}

impl std::error::Error for CdrReadError {}

/// The cause of a [`CdrReadError`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadFault {
    /// The input ends within a value.
    #[error("{needed} bytes are needed and {left} are left; the sample is cut, or of another type")]
    Truncated {
        /// The size of what was to be read.
        needed: u64,
        /// The bytes up to the end of the input or of the enclosing value.
        left: u64,
    },
    /// The encapsulation header has an unknown identifier.
    #[error("representation {id:#06x} is unknown; XCDR1 and XCDR2 are read")]
    Representation {
        /// The identifier.
        id: u16,
    },
    /// The sample has the representation of another extensibility.
    #[error("the sample has representation {id:#06x}, and the type is {extensibility}; the types differ")]
    Extensibility {
        /// The identifier of the sample.
        id: u16,
        /// The extensibility of the type.
        extensibility: Extensibility,
    },
    /// A boolean is neither 0 nor 1.
    #[error("a boolean has the value {value}; only 0 and 1 are booleans")]
    Boolean {
        /// The byte.
        value: u8,
    },
    /// An enumerated value that its type lacks.
    #[error("{value} is no literal of {of}; the writer has a newer type")]
    Literal {
        /// The name of the type.
        of: Cow<'static, str>,
        /// The value.
        value: i64,
    },
    /// A discriminator that selects no member of the union.
    #[error("discriminator {value} selects no member of {of}; the writer has a newer type")]
    Discriminator {
        /// The name of the type.
        of: Cow<'static, str>,
        /// The discriminator.
        value: i64,
    },
    /// A string has no NUL at its end.
    #[error("a string of {length} bytes has no NUL at its end; the sample is damaged, or of another type")]
    Unterminated {
        /// Its length in bytes.
        length: u32,
    },
    /// A string is not UTF-8.
    #[error("a string is not UTF-8; the writer must encode its strings as UTF-8")]
    Utf8,
    /// A wide string is not UTF-16.
    #[error("a wide string is not UTF-16; the writer must encode it as UTF-16")]
    Utf16,
    /// A length is larger than the input allows.
    #[error("{count} elements are announced, and {left} bytes are left; the sample is damaged, or of another type")]
    Count {
        /// The elements.
        count: u32,
        /// The bytes up to the end of the input or of the enclosing value.
        left: u64,
    },
    /// A string, sequence or map is longer than its bound.
    #[error("it has {length} elements, and its bound is {bound}; the writer has another bound")]
    Bound {
        /// Its length: bytes of a string, else elements.
        length: u64,
        /// The bound of the type.
        bound: u32,
    },
    /// The size in a header differs from the size of the value.
    #[error("a header announces {announced} bytes, and the value has {read}; the types differ")]
    Size {
        /// The size in the header.
        announced: u64,
        /// The size of the value.
        read: u64,
    },
    /// The writer demands that the reader knows a member, and the reader does not.
    #[error("member {id} must be understood, and the type lacks it; use the newer type")]
    MustUnderstand {
        /// The identifier of the member.
        id: u32,
    },
    /// A member of the key is missing.
    #[error("member {id} of the key is missing; the writer's type must have the same key")]
    KeyMissing {
        /// The identifier of the member.
        id: u32,
    },
    /// A member occurs twice.
    #[error("member {id} occurs twice; the sample is damaged")]
    Twice {
        /// The identifier of the member.
        id: u32,
    },
    /// Another parameter stands where an optional member must be.
    #[error("parameter {got} is found in the place of member {expected}; the types differ")]
    Parameter {
        /// The identifier of the member.
        expected: u32,
        /// The identifier that was read.
        got: u32,
    },
    /// A parameter header has an invalid form.
    #[error("a parameter header {header:#06x} has length {length}; the sample is damaged")]
    ParameterHeader {
        /// The first 16 bits.
        header: u16,
        /// The second 16 bits.
        length: u16,
    },
    /// A key of a map occurs twice.
    #[error("a key of a map occurs twice; the sample is damaged")]
    MapKeyTwice,
    /// Types contain each other more deeply than [`DEPTH_MAX`](crate::DEPTH_MAX).
    #[error("values contain each other {limit} levels deep, which is the limit; the sample is damaged")]
    TooDeep {
        /// The limit.
        limit: u16,
    },
    /// Bytes follow the value.
    #[error("{left} bytes follow the value; the sample is of another type")]
    Trailing {
        /// Their number.
        left: u64,
    },
    /// The type description refers to a type that it lacks, or has an impossible array.
    #[error("the type description is inconsistent: {0}")]
    Description(&'static str),
}
