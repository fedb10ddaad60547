//! Fields of a type that are read without decoding the rest of a sample.
use super::DynamicType;
use super::pick::{FieldNode, FieldStep, FieldValue, Picker};
use crate::dds_type::check_extensibility;
use crate::decoder::CdrDecoder;
use crate::description::{DataType, TypeBody, TypeDescription};
use crate::error::CdrReadError;

/// The steps that a path may have.
const STEPS_MAX: usize = 64;

/// A path that leads to no field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("field `{path}`: {fault}")]
pub struct FieldPathError {
    /// The path.
    pub path: String,
    /// The index of the byte in the path at which the mistake is.
    pub offset: usize,
    /// The mistake.
    pub fault: FieldFault,
}

/// The mistake in a path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FieldFault {
    /// A step is neither a name nor an index.
    #[error("a path has names and indices, such as a.b[3].c")]
    Syntax,
    /// The path is too long.
    #[error("a path has at most {limit} steps")]
    TooLong {
        /// The limit.
        limit: usize,
    },
    /// The type has no member of this name.
    #[error("type {of} has no member `{name}`; it has {members}")]
    NoMember {
        /// The type.
        of: String,
        /// The name.
        name: String,
        /// The names of its members.
        members: String,
    },
    /// A name follows a value without members.
    #[error("{of} has no members")]
    NoMembers {
        /// The type.
        of: String,
    },
    /// An index follows a value without elements.
    #[error("{of} has no elements")]
    NoElements {
        /// The type.
        of: String,
    },
    /// The index is beyond the array, or beyond the bound of the sequence.
    #[error("index {index} is beyond the last element of {of}")]
    Index {
        /// The index.
        index: u64,
        /// The type.
        of: String,
    },
    /// The path ends at a value that has parts.
    #[error("{of} has parts; name one of them")]
    NotScalar {
        /// The type.
        of: String,
    },
}

/// A set of fields that are read at once.
#[derive(Clone, Debug, Default)]
pub struct FieldSet {
    paths: Vec<String>,
    types: Vec<DataType>,
    keys: Vec<bool>,
    root: FieldNode,
}

impl FieldSet {
    /// Adds a field such as `points[3].x`, and returns its index in the set. A field that is in the
    /// set keeps its index. Fields are numbers, characters, strings, enumerations and bit masks.
    ///
    /// # Errors
    /// [`FieldPathError`] if the type has no such field.
    pub fn add(&mut self, of: &DynamicType, path: &str) -> Result<usize, FieldPathError> {
        if let Some(index) = self.paths.iter().position(|own| own == path) {
            return Ok(index);
        }
        let found = Resolver { types: of.description(), path }.resolve()?;
        let index = self.paths.len();
        self.paths.push(path.to_owned());
        self.types.push(found.data);
        self.keys.push(found.key);
        self.root.add(&found.steps, index);
        Ok(index)
    }

    /// Returns the number of fields.
    pub fn len(&self) -> usize {
        self.paths.len()
    }

    /// Returns whether there is no field.
    pub fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    /// Returns the path of a field.
    ///
    /// # Panics
    /// If the set has no field of this index.
    pub fn path(&self, index: usize) -> &str {
        &self.paths[index]
    }

    /// Returns the type of a field.
    ///
    /// # Panics
    /// If the set has no field of this index.
    pub fn data_type(&self, index: usize) -> &DataType {
        &self.types[index]
    }

    /// Returns whether all fields belong to the key.
    pub fn is_key(&self) -> bool {
        self.keys.iter().all(|key| *key)
    }

    /// Reads the fields of a sample with its header into `values`, in the order of their indices.
    /// With `key`, the sample holds the key only.
    ///
    /// A field is `None` if an optional member or the element of a sequence is absent, or if a union
    /// has selected another member. Reading stops at the last field, so the rest is not checked.
    ///
    /// # Errors
    /// [`CdrReadError`] if the bytes up to the last field are no sample of the type.
    pub fn read<'s>(
        &self,
        of: &DynamicType,
        sample: &'s [u8],
        key: bool,
        values: &mut Vec<Option<FieldValue<'s>>>,
    ) -> Result<(), CdrReadError> {
        values.clear();
        values.resize(self.len(), None);
        let types = of.description();
        if self.is_empty() || key && !types.is_keyed() {
            return Ok(());
        }
        let (mut from, encapsulation) = CdrDecoder::with_header(sample)?;
        check_extensibility(&from, encapsulation, types.extensibility())?;
        Picker::new(types, values, sample.len()).read(&self.root, &types.root, &mut from, key)
    }
}

struct Resolved {
    steps: Vec<FieldStep>,
    data: DataType,
    key: bool,
}

struct Resolver<'a> {
    types: &'a TypeDescription,
    path: &'a str,
}

/// How much of a value belongs to the key of the sample.
#[derive(Clone, Copy, PartialEq, Eq)]
enum KeyPart {
    /// Nothing.
    None,
    /// Its own key, or all of it if it has none.
    Own,
    /// All of it: members of unions.
    Whole,
}

impl KeyPart {
    fn of(key: bool) -> KeyPart {
        if key { KeyPart::Own } else { KeyPart::None }
    }

    /// Returns how much of a part belongs to the key.
    fn then(self, part: KeyPart) -> KeyPart {
        if self == KeyPart::Own { part } else { self }
    }
}

enum Step<'a> {
    Name(&'a str),
    Index(u64),
}

impl<'a> Resolver<'a> {
    fn error(&self, offset: usize, fault: FieldFault) -> FieldPathError {
        FieldPathError { path: self.path.to_owned(), offset, fault }
    }

    fn resolve(&self) -> Result<Resolved, FieldPathError> {
        let (mut data, mut steps, mut key) = (self.types.root.clone(), Vec::new(), KeyPart::Own);
        // The dimensions of an array whose indices are incomplete, and the index so far.
        let mut open: Option<(Vec<u32>, DataType, u64)> = None;
        let all = self.steps()?;
        for (offset, step) in &all {
            match step {
                Step::Name(name) if open.is_none() => {
                    let (step, inner, own) = self.member(&data, name).map_err(|fault| self.error(*offset, fault))?;
                    steps.push(step);
                    (data, key) = (inner, key.then(own));
                }
                Step::Name(_) => return Err(self.error(*offset, self.not_scalar(&data))),
                Step::Index(index) => {
                    let (dimensions, element, before) = match (open.take(), &data) {
                        (Some(open), _) => open,
                        (None, DataType::Array(element, dimensions)) => (dimensions.clone(), (**element).clone(), 0),
                        (None, DataType::Sequence(element, bound)) => {
                            let bound = if *bound == 0 { u32::MAX } else { *bound };
                            (vec![bound], (**element).clone(), 0)
                        }
                        _ => {
                            let of = self.types.name_of(&data).to_string();
                            return Err(self.error(*offset, FieldFault::NoElements { of }));
                        }
                    };
                    let (first, rest) = dimensions.split_first().unwrap_or((&0, &[]));
                    if *index >= u64::from(*first) {
                        let of = self.types.name_of(&data).to_string();
                        return Err(self.error(*offset, FieldFault::Index { index: *index, of }));
                    }
                    let index = before.saturating_mul(u64::from(*first)).saturating_add(*index);
                    if rest.is_empty() {
                        steps.push(FieldStep::Element(index));
                        data = element;
                    } else {
                        open = Some((rest.to_vec(), element, index));
                    }
                }
            }
        }
        if open.is_some() || !self.is_scalar(&data) || all.is_empty() {
            return Err(self.error(self.path.len(), self.not_scalar(&data)));
        }
        Ok(Resolved { steps, data, key: self.types.is_keyed() && key != KeyPart::None })
    }

    fn not_scalar(&self, data: &DataType) -> FieldFault {
        FieldFault::NotScalar { of: self.types.name_of(data).to_string() }
    }

    fn is_scalar(&self, data: &DataType) -> bool {
        match data {
            DataType::Primitive(_) | DataType::String(_) | DataType::WideString(_) => true,
            DataType::Named(index) => {
                self.types.get(*index).is_some_and(|own| matches!(own.body, TypeBody::Enum(_) | TypeBody::Bitmask(_)))
            }
            DataType::Array(..) | DataType::Sequence(..) | DataType::Map(..) => false,
        }
    }

    /// Returns the steps of the path, each with the index of its first byte.
    fn steps(&self) -> Result<Vec<(usize, Step<'a>)>, FieldPathError> {
        let (mut steps, mut at) = (Vec::new(), 0);
        while at < self.path.len() {
            let rest = &self.path[at..];
            let step = if let Some(index) = rest.strip_prefix('[') {
                let end = index.find(']').ok_or_else(|| self.error(at, FieldFault::Syntax))?;
                let number = index[..end].trim().parse().map_err(|_| self.error(at, FieldFault::Syntax))?;
                let step = (at, Step::Index(number));
                at += end + 2;
                step
            } else {
                let start = if at > 0 && rest.starts_with('.') { at + 1 } else { at };
                let rest = &self.path[start..];
                let name = &rest[..rest.find(['.', '[']).unwrap_or(rest.len())];
                if name.is_empty() || (at > 0 && start == at) {
                    return Err(self.error(start, FieldFault::Syntax));
                }
                at = start + name.len();
                (start, Step::Name(name))
            };
            steps.push(step);
            if steps.len() > STEPS_MAX {
                return Err(self.error(at, FieldFault::TooLong { limit: STEPS_MAX }));
            }
        }
        Ok(steps)
    }

    /// Returns the step to a member, its type, and whether it belongs to the key of its structure.
    fn member(&self, data: &DataType, name: &str) -> Result<(FieldStep, DataType, KeyPart), FieldFault> {
        let of = || self.types.name_of(data).to_string();
        let body = match data {
            DataType::Named(index) => self.types.get(*index).map(|named| &named.body),
            _ => None,
        };
        match body {
            Some(TypeBody::Struct(own)) => match own.members.iter().position(|member| member.name == name) {
                Some(index) => {
                    let member = &own.members[index];
                    // A structure without a key belongs to the key of the enclosing one as a whole.
                    let key = member.key || !own.members.iter().any(|member| member.key);
                    Ok((FieldStep::Member(index), member.data.clone(), KeyPart::of(key)))
                }
                None => {
                    let names = own.members.iter().map(|member| member.name.as_str());
                    Err(no_member(of(), name, names.collect()))
                }
            },
            Some(TypeBody::Union(own)) => {
                let found = own.cases.iter().position(|case| case.name == name);
                match found.and_then(|index| Some((index, own.cases[index].data.clone()?))) {
                    Some((index, data)) if own.discriminator_is_key => {
                        Ok((FieldStep::Member(index), data, KeyPart::None))
                    }
                    Some((index, data)) => Ok((FieldStep::Member(index), data, KeyPart::Whole)),
                    None => {
                        let named = own.cases.iter().filter(|case| case.data.is_some());
                        Err(no_member(of(), name, named.map(|case| case.name.as_str()).collect()))
                    }
                }
            }
            _ => Err(FieldFault::NoMembers { of: of() }),
        }
    }
}

fn no_member(of: String, name: &str, members: Vec<&str>) -> FieldFault {
    FieldFault::NoMember { of, name: name.to_owned(), members: members.join(", ") }
}
