//! Type objects: the type of a topic as other participants see it (DDS-XTypes 1.3, 7.3.4).
//!
//! [`TypeObjects`] has the minimal and complete type objects of a type and of those that it reaches,
//! each named by its [`TypeHash`]. [`TypeObjects::description`] reads complete ones back.
mod build;
mod error;
mod hash;
mod identifier;
mod object;
mod read;

pub use error::TypeObjectError;
pub use hash::TypeHash;

use crate::description::TypeDescription;
use build::{Builder, encode};
use identifier::{
    EK_COMPLETE, EK_MINIMAL, TypeIdentifier, TypeIdentifierWithDependencies, TypeIdentifierWithSize, TypeInformation,
};
use std::collections::BTreeMap;

/// The kind of a type object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TypeObjectKind {
    /// Without names: enough to compare types.
    Minimal,
    /// With names.
    Complete,
}

impl TypeObjectKind {
    const fn equivalence(self) -> u8 {
        match self {
            TypeObjectKind::Minimal => EK_MINIMAL,
            TypeObjectKind::Complete => EK_COMPLETE,
        }
    }
}

/// The type objects of a type and of those that it reaches, in XCDR2, little endian, without headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeObjects {
    /// The minimal ones; the type itself is the last.
    minimal: Vec<(TypeHash, Vec<u8>)>,
    complete: Vec<(TypeHash, Vec<u8>)>,
}

impl TypeObjects {
    /// Makes the type objects of a type.
    ///
    /// # Errors
    /// `Recursive` for types that contain themselves, which are not supported; `Unnamed` if the
    /// outermost type has no name.
    pub fn of(types: &TypeDescription) -> Result<TypeObjects, TypeObjectError> {
        let built = Builder::new(types).build()?;
        let (minimal, complete) = built.into_iter().map(|built| (built.minimal, built.complete)).unzip();
        Ok(TypeObjects { minimal, complete })
    }

    /// Returns the type objects of one kind with their hashes. The type itself is the last.
    pub fn all(&self, kind: TypeObjectKind) -> &[(TypeHash, Vec<u8>)] {
        match kind {
            TypeObjectKind::Minimal => &self.minimal,
            TypeObjectKind::Complete => &self.complete,
        }
    }

    /// Returns the hash of the type.
    pub fn hash(&self, kind: TypeObjectKind) -> TypeHash {
        self.all(kind).last().map_or(TypeHash([0; 14]), |(hash, _)| *hash)
    }

    /// Returns the encoded type identifier of the type.
    pub fn identifier(&self, kind: TypeObjectKind) -> Vec<u8> {
        let mut identifier = vec![kind.equivalence()];
        identifier.extend(self.hash(kind).0);
        identifier
    }

    /// Returns the encoded `TypeInformation`, which discovery announces: the identifiers of the type
    /// and of those that it reaches, with the sizes of their type objects.
    ///
    /// # Errors
    /// `Write` if a size does not fit into 32 bits.
    pub fn information(&self) -> Result<Vec<u8>, TypeObjectError> {
        let of = |kind: TypeObjectKind| {
            let mut identifiers: Vec<_> = self
                .all(kind)
                .iter()
                .map(|(hash, object)| TypeIdentifierWithSize {
                    type_id: TypeIdentifier::Hash(kind.equivalence(), hash.0),
                    typeobject_serialized_size: object.len() as u32,
                })
                .collect();
            let typeid_with_size = identifiers
                .pop()
                .unwrap_or(TypeIdentifierWithSize { type_id: TypeIdentifier::Kind(0), typeobject_serialized_size: 0 });
            TypeIdentifierWithDependencies {
                typeid_with_size,
                dependent_typeid_count: identifiers.len() as i32,
                dependent_typeids: identifiers,
            }
        };
        encode(&TypeInformation { minimal: of(TypeObjectKind::Minimal), complete: of(TypeObjectKind::Complete) })
    }

    /// Describes a type by its complete type object and those that it refers to, by their hashes.
    ///
    /// # Errors
    /// `Missing` if one is missing; `Hash` if one does not have the hash that it is found by; `Read`
    /// and `Unsupported` if one can't be read.
    pub fn description(
        root: TypeHash,
        objects: &BTreeMap<TypeHash, Vec<u8>>,
    ) -> Result<TypeDescription, TypeObjectError> {
        read::describe(root, objects)
    }
}
