//! Assignability: whether a reader of one type can read samples of another (DDS-XTypes 1.3, 7.2.4).
//!
//! Each refusal names the member, the rule, and both types. Enumerations and bit masks are final.
use crate::description::*;
use crate::format::Extensibility;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The policy TYPE_CONSISTENCY_ENFORCEMENT of a reader (DDS-XTypes 1.3, 7.6.3.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TypeConsistency {
    /// Whether types may differ; otherwise both must be equal, names included.
    pub allow_type_coercion: bool,
    /// Whether a sequence or map of the writer may have a larger bound.
    pub ignore_sequence_bounds: bool,
    /// Whether a string of the writer may have a larger bound.
    pub ignore_string_bounds: bool,
    /// Whether members with the same identifier may have different names.
    pub ignore_member_names: bool,
    /// Whether the reader's type may not have members that the writer's type lacks.
    pub prevent_type_widening: bool,
}

impl Default for TypeConsistency {
    /// The values of the specification: differences and bounds are allowed, other names are not.
    fn default() -> TypeConsistency {
        TypeConsistency {
            allow_type_coercion: true,
            ignore_sequence_bounds: true,
            ignore_string_bounds: true,
            ignore_member_names: false,
            prevent_type_widening: false,
        }
    }
}

/// Why samples of the writer's type can't be read as the reader's type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the types don't match{}: {rule}", at(.member))]
pub struct NotAssignable {
    /// The path to the member, such as `points[].x`; empty for the types themselves.
    pub member: String,
    /// The rule that is broken.
    pub rule: AssignRule,
}

fn at(member: &str) -> String {
    if member.is_empty() { String::new() } else { format!(" at member {member}") }
}

/// A rule of assignability that is broken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AssignRule {
    /// The types are of different kinds, or are different primitive types.
    #[error("the reader has {reader}, the writer {writer}; use one type")]
    Kind {
        /// The reader's type.
        reader: String,
        /// The writer's type.
        writer: String,
    },
    /// The types have different extensibilities.
    #[error("the reader's type {name} is {reader}, the writer's is {writer}; declare both alike")]
    Extensibility {
        /// The name of the reader's type.
        name: String,
        /// The extensibility of the reader's type.
        reader: Extensibility,
        /// The extensibility of the writer's type.
        writer: Extensibility,
    },
    /// The reader's bound is smaller.
    #[error("the reader's bound is {reader}, the writer's is {writer} (0: none); raise the reader's bound")]
    Bound {
        /// The bound of the reader's type.
        reader: u32,
        /// The bound of the writer's type.
        writer: u32,
    },
    /// Arrays have different dimensions.
    #[error("the reader's array has the dimensions {reader:?}, the writer's {writer:?}; use the same")]
    Dimensions {
        /// Those of the reader's type.
        reader: Vec<u32>,
        /// Those of the writer's type.
        writer: Vec<u32>,
    },
    /// Final types have different members.
    #[error("the type is final, and only the {side} has the member; declare the type appendable or mutable")]
    Final {
        /// The side that has the member: `reader` or `writer`.
        side: &'static str,
    },
    /// Members are at different places.
    #[error("member {reader} of the reader is in the place of the writer's {writer}; add members at the end only")]
    Order {
        /// The identifier of the reader's member.
        reader: u32,
        /// The identifier of the writer's member.
        writer: u32,
    },
    /// A member has another name.
    #[error("identifier {id} is `{reader}` at the reader and `{writer}` at the writer; rename one of them")]
    Name {
        /// The identifier of both.
        id: u32,
        /// The name of the reader's member.
        reader: String,
        /// The name of the writer's member.
        writer: String,
    },
    /// A member has another identifier.
    #[error("the member has identifier {reader} at the reader and {writer} at the writer; give both the same")]
    Identifier {
        /// The identifier of the reader's member.
        reader: u32,
        /// The identifier of the writer's member.
        writer: u32,
    },
    /// A member belongs to the key of one type only.
    #[error("the member is in the key of the {side} only; both types must have the same key")]
    Key {
        /// The side whose key has the member.
        side: &'static str,
    },
    /// A member is optional in one type only.
    #[error("the member is optional at the {side} only; declare both alike, or the types mutable")]
    Optional {
        /// The side where it is optional.
        side: &'static str,
    },
    /// A member must be understood, and the other type lacks it.
    #[error("only the {side} has the member, which must be understood; add it to the other type")]
    MustUnderstand {
        /// The side that has the member.
        side: &'static str,
    },
    /// Mutable or appendable types have no member in common.
    #[error("no member of the types has the same identifier; the types are unrelated")]
    NothingInCommon,
    /// The reader has a member that the writer lacks, which the reader forbids.
    #[error("only the reader has the member, and its policy prevents type widening; use the writer's type")]
    Widening,
    /// An enumeration or a bit mask differs.
    #[error("{name} is `{reader}` at the reader and `{writer}` at the writer; use one definition")]
    Literal {
        /// The value or the position.
        name: i64,
        /// The reader's name of it, or nothing.
        reader: String,
        /// The writer's name of it, or nothing.
        writer: String,
    },
    /// A bit mask or an enumeration has another number of bits.
    #[error("the reader has {reader} bits, the writer {writer}; use the same bit_bound")]
    Bits {
        /// The bits at the reader.
        reader: u16,
        /// The bits at the writer.
        writer: u16,
    },
    /// A label of the writer's union selects no member of the reader's.
    #[error("label {label} selects a member at the {side} only; add it to the other union")]
    Label {
        /// The label.
        label: i32,
        /// The side that has it.
        side: &'static str,
    },
    /// The types differ, and the reader allows no difference.
    #[error("the types differ, and the reader's policy disallows type coercion; use the writer's type")]
    Coercion,
    /// A description lacks a type that it refers to.
    #[error("the description of the {side} lacks a type; describe the type anew")]
    Description {
        /// The side whose description it is.
        side: &'static str,
    },
}

/// Checks that samples of the writer's type can be read as the reader's type.
///
/// # Errors
/// The first rule that is broken, with the member.
pub fn check_assignable(
    reader: &TypeDescription,
    writer: &TypeDescription,
    consistency: TypeConsistency,
) -> Result<(), NotAssignable> {
    if !consistency.allow_type_coercion
        && reader.name_of(&reader.root).to_string() != writer.name_of(&writer.root).to_string()
    {
        return Err(NotAssignable { member: String::new(), rule: AssignRule::Coercion });
    }
    let mut check = Check { reader, writer, consistency, path: Vec::new(), assumed: BTreeMap::new() };
    check.data(&reader.root, &writer.root).map_err(|rule| NotAssignable { member: path_text(&check.path), rule })
}

fn path_text(path: &[String]) -> String {
    let mut text = String::new();
    for step in path {
        if !text.is_empty() && !step.starts_with('[') {
            text.push('.');
        }
        text.push_str(step);
    }
    text
}

struct Check<'a> {
    reader: &'a TypeDescription,
    writer: &'a TypeDescription,
    consistency: TypeConsistency,
    /// The path to the current member. After an error it stays there.
    path: Vec<String>,
    /// The pairs of named types that are assignable, or are being compared.
    assumed: BTreeMap<(TypeIndex, TypeIndex), ()>,
}

type Checked = Result<(), AssignRule>;

impl Check<'_> {
    fn at(&mut self, step: impl Into<String>, check: impl FnOnce(&mut Self) -> Checked) -> Checked {
        self.path.push(step.into());
        check(self)?;
        self.path.pop();
        Ok(())
    }

    fn kinds(&self, reader: &DataType, writer: &DataType) -> AssignRule {
        AssignRule::Kind {
            reader: self.reader.name_of(reader).to_string(),
            writer: self.writer.name_of(writer).to_string(),
        }
    }

    fn data(&mut self, reader: &DataType, writer: &DataType) -> Checked {
        match (reader, writer) {
            (DataType::Primitive(left), DataType::Primitive(right)) if left == right => Ok(()),
            (DataType::String(left), DataType::String(right))
            | (DataType::WideString(left), DataType::WideString(right)) => {
                bound(*left, *right, self.consistency.ignore_string_bounds && self.consistency.allow_type_coercion)
            }
            (DataType::Sequence(left, left_bound), DataType::Sequence(right, right_bound)) => {
                self.sequence_bound(*left_bound, *right_bound)?;
                self.at("[]", |check| check.data(left, right))
            }
            (DataType::Array(left, left_dimensions), DataType::Array(right, right_dimensions)) => {
                if left_dimensions != right_dimensions {
                    let (reader, writer) = (left_dimensions.clone(), right_dimensions.clone());
                    return Err(AssignRule::Dimensions { reader, writer });
                }
                self.at("[]", |check| check.data(left, right))
            }
            (DataType::Map(left_key, left, left_bound), DataType::Map(right_key, right, right_bound)) => {
                self.sequence_bound(*left_bound, *right_bound)?;
                self.at("[key]", |check| check.data(left_key, right_key))?;
                self.at("[]", |check| check.data(left, right))
            }
            (DataType::Named(left), DataType::Named(right)) => self.named(*left, *right),
            _ => Err(self.kinds(reader, writer)),
        }
    }

    fn sequence_bound(&self, reader: u32, writer: u32) -> Checked {
        bound(reader, writer, self.consistency.ignore_sequence_bounds && self.consistency.allow_type_coercion)
    }

    fn named(&mut self, left: TypeIndex, right: TypeIndex) -> Checked {
        if self.assumed.insert((left, right), ()).is_some() {
            return Ok(());
        }
        let (own, other) = (self.reader, self.writer);
        let reader = own.get(left).ok_or(AssignRule::Description { side: "reader" })?;
        let writer = other.get(right).ok_or(AssignRule::Description { side: "writer" })?;
        match (&reader.body, &writer.body) {
            (TypeBody::Struct(left), TypeBody::Struct(right)) => {
                extensibility(&reader.name, left.extensibility, right.extensibility)?;
                self.structures(left, right)
            }
            (TypeBody::Union(left), TypeBody::Union(right)) => {
                extensibility(&reader.name, left.extensibility, right.extensibility)?;
                self.unions(left, right)
            }
            (TypeBody::Enum(left), TypeBody::Enum(right)) => {
                bits(left.bit_bound, right.bit_bound)?;
                let names = |own: &EnumType| {
                    own.literals.iter().map(|literal| (i64::from(literal.value), literal.name.clone())).collect()
                };
                self.literals(&names(left), &names(right))
            }
            (TypeBody::Bitmask(left), TypeBody::Bitmask(right)) => {
                bits(left.bit_bound, right.bit_bound)?;
                let names = |own: &BitmaskType| {
                    own.flags.iter().map(|(name, position)| (i64::from(*position), name.clone())).collect()
                };
                self.literals(&names(left), &names(right))
            }
            _ => Err(AssignRule::Kind { reader: kind_of(reader), writer: kind_of(writer) }),
        }
    }

    /// Compares the names of all values.
    fn literals(&self, reader: &BTreeMap<i64, String>, writer: &BTreeMap<i64, String>) -> Checked {
        for name in reader.keys().chain(writer.keys()) {
            let (left, right) = (reader.get(name), writer.get(name));
            let same = match (left, right) {
                (Some(left), Some(right)) => left == right || self.consistency.ignore_member_names,
                _ => false,
            };
            if !same {
                let text = |found: Option<&String>| found.cloned().unwrap_or_default();
                return Err(AssignRule::Literal { name: *name, reader: text(left), writer: text(right) });
            }
        }
        Ok(())
    }

    fn structures(&mut self, reader: &StructType, writer: &StructType) -> Checked {
        self.names(reader, writer)?;
        let mut common = 0;
        for (place, left) in reader.members.iter().enumerate() {
            let found = match reader.extensibility {
                Extensibility::Mutable => writer.members.iter().find(|right| right.id == left.id),
                _ => writer.members.get(place),
            };
            match found {
                Some(right) => {
                    self.at(left.name.clone(), |check| check.members(left, right, reader.extensibility))?;
                    common += 1;
                }
                None => self.at(left.name.clone(), |check| check.absent(left, reader.extensibility, "reader"))?,
            }
        }
        for (place, right) in writer.members.iter().enumerate() {
            let known = match reader.extensibility {
                Extensibility::Mutable => reader.members.iter().any(|left| left.id == right.id),
                _ => place < reader.members.len(),
            };
            if !known {
                self.at(right.name.clone(), |check| check.absent(right, reader.extensibility, "writer"))?;
            }
        }
        if common == 0 && !(reader.members.is_empty() && writer.members.is_empty()) {
            return Err(AssignRule::NothingInCommon);
        }
        Ok(())
    }

    /// Checks that a name means the same member in both types.
    fn names(&mut self, reader: &StructType, writer: &StructType) -> Checked {
        if self.consistency.ignore_member_names {
            return Ok(());
        }
        for left in &reader.members {
            if let Some(right) = writer.members.iter().find(|right| right.name == left.name && right.id != left.id) {
                let rule = AssignRule::Identifier { reader: left.id, writer: right.id };
                return self.at(left.name.clone(), |_| Err(rule));
            }
        }
        Ok(())
    }

    /// Compares two members that are read as one.
    fn members(&mut self, left: &MemberType, right: &MemberType, extensibility: Extensibility) -> Checked {
        if left.id != right.id {
            return Err(AssignRule::Order { reader: left.id, writer: right.id });
        }
        if left.name != right.name && !self.consistency.ignore_member_names {
            let (reader, writer) = (left.name.clone(), right.name.clone());
            return Err(AssignRule::Name { id: left.id, reader, writer });
        }
        if left.key != right.key {
            return Err(AssignRule::Key { side: if left.key { "reader" } else { "writer" } });
        }
        if left.optional != right.optional && extensibility != Extensibility::Mutable {
            return Err(AssignRule::Optional { side: if left.optional { "reader" } else { "writer" } });
        }
        if left.key {
            // A key that is cut would name another instance, so its bounds count in any case.
            let outer = self.consistency;
            self.consistency.ignore_string_bounds = false;
            self.consistency.ignore_sequence_bounds = false;
            self.data(&left.data, &right.data)?;
            self.consistency = outer;
            return Ok(());
        }
        self.data(&left.data, &right.data)
    }

    /// Checks a member that one of the types lacks.
    fn absent(&self, member: &MemberType, extensibility: Extensibility, side: &'static str) -> Checked {
        if extensibility == Extensibility::Final {
            return Err(AssignRule::Final { side });
        }
        if member.key {
            return Err(AssignRule::Key { side });
        }
        if member.must_understand && !member.optional {
            return Err(AssignRule::MustUnderstand { side });
        }
        if side == "reader" && self.consistency.prevent_type_widening {
            return Err(AssignRule::Widening);
        }
        match self.consistency.allow_type_coercion {
            true => Ok(()),
            false => Err(AssignRule::Coercion),
        }
    }

    fn unions(&mut self, reader: &UnionType, writer: &UnionType) -> Checked {
        self.at("discriminator", |check| {
            check.data(&reader.discriminator, &writer.discriminator)?;
            if reader.discriminator_is_key == writer.discriminator_is_key {
                return Ok(());
            }
            Err(AssignRule::Key { side: if reader.discriminator_is_key { "reader" } else { "writer" } })
        })?;
        for right in &writer.cases {
            for label in &right.labels {
                let left = reader.cases.iter().find(|left| left.labels.contains(label));
                match left.or(reader.cases.iter().find(|left| left.default)) {
                    Some(left) => self.at(left.name.clone(), |check| check.cases(left, right))?,
                    None => return Err(AssignRule::Label { label: *label, side: "writer" }),
                }
            }
        }
        if reader.extensibility == Extensibility::Final {
            let known = |label: &&i32| writer.cases.iter().any(|right| right.labels.contains(label));
            if let Some(label) = reader.cases.iter().flat_map(|left| &left.labels).find(|label| !known(label)) {
                return Err(AssignRule::Label { label: *label, side: "reader" });
            }
        }
        let default = |own: &UnionType| own.cases.iter().position(|case| case.default);
        match (default(reader), default(writer)) {
            (Some(left), Some(right)) => {
                let (left, right) = (&reader.cases[left], &writer.cases[right]);
                self.at(left.name.clone(), |check| check.cases(left, right))
            }
            _ => Ok(()),
        }
    }

    fn cases(&mut self, left: &CaseType, right: &CaseType) -> Checked {
        match (&left.data, &right.data) {
            (Some(left), Some(right)) => self.data(left, right),
            (None, None) => Ok(()),
            (left, right) => {
                let name = |types: &TypeDescription, data: &Option<DataType>| match data {
                    Some(data) => types.name_of(data).to_string(),
                    None => "no member".to_owned(),
                };
                Err(AssignRule::Kind { reader: name(self.reader, left), writer: name(self.writer, right) })
            }
        }
    }
}

fn kind_of(named: &NamedType) -> String {
    let kind = match named.body {
        TypeBody::Struct(_) => "structure",
        TypeBody::Union(_) => "union",
        TypeBody::Enum(_) => "enumeration",
        TypeBody::Bitmask(_) => "bit mask",
    };
    format!("{kind} {}", named.name)
}

fn bound(reader: u32, writer: u32, ignored: bool) -> Checked {
    match reader == 0 || ignored || (writer != 0 && writer <= reader) {
        true => Ok(()),
        false => Err(AssignRule::Bound { reader, writer }),
    }
}

fn bits(reader: u16, writer: u16) -> Checked {
    if reader == writer { Ok(()) } else { Err(AssignRule::Bits { reader, writer }) }
}

fn extensibility(name: &str, reader: Extensibility, writer: Extensibility) -> Checked {
    match reader == writer {
        true => Ok(()),
        false => Err(AssignRule::Extensibility { name: name.to_owned(), reader, writer }),
    }
}
