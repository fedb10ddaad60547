//! The types that entities refer to.
use super::error::DirectoryError;
use spindle_xcdr::{TypeDescription, TypeHash, TypeObjects};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The most bytes of the type objects of a type.
const OBJECTS_BYTES_MAX: usize = 256 << 10;

/// A type, and how many entities refer to it.
#[derive(Clone, Debug)]
struct KnownType {
    objects: BTreeMap<TypeHash, Vec<u8>>,
    description: Arc<TypeDescription>,
    uses: usize,
}

/// All types, by the hashes of their complete type objects. Entities of one type share its description.
#[derive(Clone, Debug, Default)]
pub(super) struct TypeTable(BTreeMap<TypeHash, KnownType>);

impl TypeTable {
    /// Adds a type without uses.
    pub(super) fn add(&mut self, hash: TypeHash, objects: &BTreeMap<TypeHash, Vec<u8>>) -> Result<(), DirectoryError> {
        if self.0.contains_key(&hash) {
            return Ok(());
        }
        let bytes: usize = objects.values().map(Vec::len).sum();
        if bytes > OBJECTS_BYTES_MAX {
            return Err(DirectoryError::TooLong {
                what: format!("type {hash}"),
                length: bytes as u64,
                unit: "bytes".to_owned(),
                limit: OBJECTS_BYTES_MAX as u64,
            });
        }
        let description = TypeObjects::description(hash, objects)
            .map_err(|error| DirectoryError::Type { hash, why: error.to_string() })?;
        self.0.insert(hash, KnownType { objects: objects.clone(), description: Arc::new(description), uses: 0 });
        Ok(())
    }

    /// Counts a use, and returns the description.
    pub(super) fn refer(&mut self, hash: TypeHash) -> Result<Arc<TypeDescription>, DirectoryError> {
        let known = self.0.get_mut(&hash).ok_or(DirectoryError::NoType(hash))?;
        known.uses += 1;
        Ok(known.description.clone())
    }

    /// Takes a use back.
    pub(super) fn release(&mut self, hash: TypeHash) {
        if let Some(known) = self.0.get_mut(&hash) {
            known.uses -= 1;
        }
    }

    /// Removes the types without uses.
    pub(super) fn collect(&mut self) {
        self.0.retain(|_, known| known.uses > 0);
    }

    pub(super) fn description(&self, hash: TypeHash) -> Option<&Arc<TypeDescription>> {
        self.0.get(&hash).map(|known| &known.description)
    }

    pub(super) fn objects(&self, hash: TypeHash) -> Option<&BTreeMap<TypeHash, Vec<u8>>> {
        self.0.get(&hash).map(|known| &known.objects)
    }

    /// Returns all types with their objects.
    pub(super) fn iter(&self) -> impl Iterator<Item = (TypeHash, &BTreeMap<TypeHash, Vec<u8>>)> {
        self.0.iter().map(|(hash, known)| (*hash, &known.objects))
    }
}
