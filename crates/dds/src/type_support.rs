//! A type as the entities of a topic use it, without its Rust type.
use crate::payload::Payload;
use spindle_dds_core::DdsError;
use spindle_dds_core::cache::KeyReader;
use spindle_dds_core::directory::EntityChange;
use spindle_xcdr::{
    DataType, DdsType, DynamicType, SampleFormat, TypeBody, TypeDescription, TypeHash, TypeObjectKind, TypeObjects,
    decode_sample, encode_key_sample,
};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// The largest sample of a type without a bound that is sent in a ring, in bytes. Larger ones are sent as objects.
const UNBOUNDED_SAMPLE_BYTES: u32 = 4096;
/// The largest sample of a type with a bound that is sent in a ring, in bytes.
const BOUNDED_SAMPLE_BYTES_MAX: u64 = 64 << 10;

/// A type: its name, its description, and how its keys are read.
pub(crate) struct TypeSupport {
    pub(crate) name: String,
    /// The hash of its complete type object; `None` for recursive types, which have none.
    pub(crate) hash: Option<TypeHash>,
    objects: BTreeMap<TypeHash, Vec<u8>>,
    pub(crate) key_of: KeyReader<Payload>,
    /// The largest sample in a ring, in bytes.
    pub(crate) sample_bytes_max: u32,
}

impl fmt::Debug for TypeSupport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TypeSupport").field("name", &self.name).field("hash", &self.hash).finish_non_exhaustive()
    }
}

impl TypeSupport {
    /// Makes the support of a Rust type.
    pub(crate) fn of<T: DdsType + 'static>() -> Result<TypeSupport, DdsError> {
        let key_of: KeyReader<Payload> = Arc::new(|sample: &Payload| {
            if !T::KEYED {
                return Ok(Arc::from([]));
            }
            let value: T = decode_sample(sample.as_ref())?;
            // The key of a value that was read has an encoding.
            Ok(encode_key_sample(&value, SampleFormat::default()).unwrap_or_default().into())
        });
        TypeSupport::new(T::NAME, T::description(), key_of)
    }

    /// Makes the support of a type that is described at run time. `known` are the hash and the type objects by
    /// which the directory knows it.
    pub(crate) fn dynamic(
        name: &str,
        of: &Arc<DynamicType>,
        known: Option<(TypeHash, BTreeMap<TypeHash, Vec<u8>>)>,
    ) -> Result<TypeSupport, DdsError> {
        let key_type = Arc::clone(of);
        let key_of: KeyReader<Payload> = Arc::new(move |sample: &Payload| {
            if !key_type.description().is_keyed() {
                return Ok(Arc::from([]));
            }
            let value = key_type.decode_sample(sample.as_ref())?;
            // The key of a value that was read has an encoding.
            Ok(key_type.encode_key_sample(&value, SampleFormat::default()).unwrap_or_default().into())
        });
        let own = TypeSupport::new(name, of.description().clone(), key_of)?;
        Ok(match known {
            Some((hash, objects)) => TypeSupport { hash: Some(hash), objects, ..own },
            None => own,
        })
    }

    fn new(name: &str, description: TypeDescription, key_of: KeyReader<Payload>) -> Result<TypeSupport, DdsError> {
        let objects = TypeObjects::of(&description).ok();
        let hash = objects.as_ref().map(|own| own.hash(TypeObjectKind::Complete));
        let objects = objects.map(|own| own.all(TypeObjectKind::Complete).iter().cloned().collect());
        let bound = Bound { types: &description, depth: 0 }.of(&description.root);
        let sample_bytes_max = match bound {
            // The header, and the padding of the sample.
            Some(bytes) if bytes <= BOUNDED_SAMPLE_BYTES_MAX => (bytes + 8) as u32,
            _ => UNBOUNDED_SAMPLE_BYTES,
        };
        Ok(TypeSupport { name: name.to_owned(), hash, objects: objects.unwrap_or_default(), key_of, sample_bytes_max })
    }

    /// Returns the change that makes the type known to the directory; `None` if it has no type object.
    pub(crate) fn announcement(&self) -> Option<EntityChange> {
        Some(EntityChange::Type { hash: self.hash?, objects: self.objects.clone() })
    }
}

/// Computes bounds of the encoded sizes of values, in bytes; `None` without a bound.
#[derive(Clone, Copy)]
struct Bound<'a> {
    types: &'a TypeDescription,
    depth: u32,
}

impl Bound<'_> {
    /// The deepest nesting of types with a bound: deeper ones may be recursive.
    const DEPTH_MAX: u32 = 32;
    /// The bytes that a member may need in front of it: padding, a header and a flag.
    const MEMBER_BYTES: u64 = 20;
    /// The bytes that a value may need in front of it: padding, a length and a count.
    const HEAD_BYTES: u64 = 16;

    fn of(self, data: &DataType) -> Option<u64> {
        let many = |element: &DataType, count: u64| {
            let each = self.of(element)?;
            let padded = if matches!(element, DataType::Primitive(_)) { each } else { each.checked_add(8)? };
            count.checked_mul(padded)?.checked_add(Bound::HEAD_BYTES)
        };
        match data {
            DataType::Primitive(kind) => Some(kind.size() as u64),
            DataType::String(0) | DataType::WideString(0) | DataType::Sequence(_, 0) | DataType::Map(_, _, 0) => None,
            DataType::String(bound) => Some(u64::from(*bound) + Bound::HEAD_BYTES),
            DataType::WideString(bound) => Some(2 * u64::from(*bound) + Bound::HEAD_BYTES),
            DataType::Sequence(element, bound) => many(element, (*bound).into()),
            DataType::Array(element, dimensions) => {
                many(element, dimensions.iter().try_fold(1_u64, |all, own| all.checked_mul((*own).into()))?)
            }
            DataType::Map(key, value, bound) => {
                let each = self.of(key)?.checked_add(self.of(value)?)?.checked_add(16)?;
                u64::from(*bound).checked_mul(each)?.checked_add(Bound::HEAD_BYTES)
            }
            DataType::Named(index) => {
                if self.depth == Bound::DEPTH_MAX {
                    return None;
                }
                let inner = Bound { depth: self.depth + 1, ..self };
                match &self.types.get(*index)?.body {
                    TypeBody::Struct(own) => own.members.iter().try_fold(Bound::HEAD_BYTES, |all, member| {
                        all.checked_add(inner.of(&member.data)?)?.checked_add(Bound::MEMBER_BYTES)
                    }),
                    TypeBody::Union(own) => {
                        let cases: Option<Vec<u64>> = own
                            .cases
                            .iter()
                            .map(|case| case.data.as_ref().map_or(Some(0), |data| inner.of(data)))
                            .collect();
                        let largest = cases?.into_iter().max().unwrap_or(0);
                        largest.checked_add(2 * Bound::MEMBER_BYTES + Bound::HEAD_BYTES)
                    }
                    TypeBody::Enum(own) => Some(own.size() as u64),
                    TypeBody::Bitmask(own) => Some(own.size() as u64),
                }
            }
        }
    }
}
