//! Types whose memory is their encoding.
use crate::model::{DataType, Extensibility, ItemId, ItemKind, Model, Primitive, StructItem};
use std::collections::BTreeMap;

/// The sizes and alignments of the plain structures, in bytes.
pub(super) fn plain_structures(model: &Model) -> BTreeMap<ItemId, (u64, u64)> {
    let mut known = BTreeMap::new();
    // A structure that contains one that is defined later is not plain, so one pass is enough.
    for (id, item) in model.items() {
        if let ItemKind::Struct(own) = &item.kind
            && let Some(layout) = structure(model, own, &known)
        {
            known.insert(id, layout);
        }
    }
    known
}

fn structure(model: &Model, own: &StructItem, known: &BTreeMap<ItemId, (u64, u64)>) -> Option<(u64, u64)> {
    let (mut size, mut alignment) = (0_u64, 1);
    if own.extensibility != Extensibility::Final {
        return None;
    }
    for member in model.all_members(own) {
        if member.optional || member.external {
            return None;
        }
        let (bytes, aligned) = layout(model, &member.data, known)?;
        if !size.is_multiple_of(aligned) {
            return None;
        }
        size = size.checked_add(bytes)?;
        alignment = alignment.max(aligned);
    }
    (size > 0 && size.is_multiple_of(alignment)).then_some((size, alignment))
}

fn layout(model: &Model, data: &DataType, known: &BTreeMap<ItemId, (u64, u64)>) -> Option<(u64, u64)> {
    match model.resolved(data) {
        DataType::Primitive(primitive) => {
            let size = match primitive {
                // Not every pattern of bits is a boolean.
                Primitive::Boolean => return None,
                Primitive::Octet | Primitive::Char | Primitive::Int8 | Primitive::UInt8 => 1,
                Primitive::WideChar | Primitive::Int16 | Primitive::UInt16 => 2,
                Primitive::Int32 | Primitive::UInt32 | Primitive::Float => 4,
                Primitive::Int64 | Primitive::UInt64 | Primitive::Double => 8,
            };
            Some((size, size))
        }
        DataType::Array(element, dimensions) => {
            let (size, alignment) = layout(model, element, known)?;
            let size = dimensions.iter().try_fold(size, |size, length| size.checked_mul((*length).into()))?;
            Some((size, alignment))
        }
        DataType::Named(id) => known.get(id).copied(),
        DataType::String(_) | DataType::WideString(_) | DataType::Sequence(..) => None,
    }
}
