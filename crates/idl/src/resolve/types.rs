//! Types of members, elements and constants.
use super::Resolver;
use super::scope::{Entry, ScopeId};
use crate::error::Checked;
use crate::fault::IdlFault;
use crate::limits::TYPE_DEPTH_MAX;
use crate::model::{DataType, ItemKind, Model};
use crate::source::Place;
use crate::syntax::{Declarator, TypeSpec, TypeSpecKind};

/// The most elements of an array.
const ELEMENTS_MAX: u64 = i32::MAX as u64;
/// The largest bound of a string or sequence.
const BOUND_MAX: u64 = u32::MAX as u64;
/// The most dimensions of an array.
const DIMENSIONS_MAX: usize = 16;

impl Resolver<'_> {
    pub(super) fn data_type(&self, scope: ScopeId, spec: &TypeSpec) -> Checked<DataType> {
        let bound = |bound: Option<&_>, what| match bound {
            Some(bound) => self.size(scope, bound, what, BOUND_MAX).map(|bound| bound as u32),
            None => Ok(0),
        };
        let data = match &spec.kind {
            TypeSpecKind::Primitive(primitive) => DataType::Primitive(*primitive),
            TypeSpecKind::String(limit) => DataType::String(bound(limit.as_ref(), "the bound of the string")?),
            TypeSpecKind::WideString(limit) => DataType::WideString(bound(limit.as_ref(), "the bound of the string")?),
            TypeSpecKind::Sequence(element, limit) => {
                let element = self.data_type(scope, element)?;
                DataType::Sequence(Box::new(element), bound(limit.as_ref(), "the bound of the sequence")?)
            }
            TypeSpecKind::Named(name) => match self.scopes.find(scope, name, &self.model)? {
                Entry::Item(id) => match &self.model.item(id).kind {
                    ItemKind::Constant(..) => {
                        return Err((name.place, IdlFault::NoType { name: name.text(), kind: "a constant" }));
                    }
                    _ => DataType::Named(id),
                },
                Entry::Module(_) => {
                    return Err((name.place, IdlFault::NoType { name: name.text(), kind: "a module" }));
                }
                Entry::Literal(..) => {
                    return Err((name.place, IdlFault::NoType { name: name.text(), kind: "a literal" }));
                }
            },
        };
        self.check_depth(&data, spec.place)?;
        Ok(data)
    }

    /// Makes an array of a type if the declarator has dimensions.
    pub(super) fn dimensions(&self, scope: ScopeId, data: DataType, declarator: &Declarator) -> Checked<DataType> {
        if declarator.dimensions.is_empty() {
            return Ok(data);
        }
        let place = declarator.name.place;
        if declarator.dimensions.len() > DIMENSIONS_MAX {
            let (what, limit) = ("dimensions", DIMENSIONS_MAX);
            return Err((place, IdlFault::TooMany { what, limit, remedy: "define a type for the inner ones" }));
        }
        let (mut lengths, mut elements) = (Vec::new(), 1_u64);
        for dimension in &declarator.dimensions {
            let length = self.size(scope, dimension, "the length of the array", ELEMENTS_MAX)?;
            elements = elements.saturating_mul(length);
            lengths.push(length as u32);
        }
        if elements > ELEMENTS_MAX {
            let (what, value) = ("the number of elements", elements.to_string());
            return Err((place, IdlFault::Size { what, value, limit: ELEMENTS_MAX }));
        }
        let data = DataType::Array(Box::new(data), lengths);
        self.check_depth(&data, place)?;
        Ok(data)
    }

    fn check_depth(&self, data: &DataType, place: Place) -> Checked<()> {
        match depth(&self.model, data) > TYPE_DEPTH_MAX {
            true => {
                let what = "types in each other";
                let remedy = "use a structure for the inner ones";
                Err((place, IdlFault::TooMany { what, limit: TYPE_DEPTH_MAX, remedy }))
            }
            false => Ok(()),
        }
    }

    /// Checks that the bounds of a member have a form in Rust: its own, and that of its elements.
    pub(super) fn check_bounds(&self, data: &DataType, place: Place) -> Checked<()> {
        match bounds(&self.model, data) {
            Some(_) => Ok(()),
            None => Err((place, IdlFault::BoundDepth)),
        }
    }
}

/// Returns how many sequences, arrays and names contain each other. Every type is checked when it is
/// made, so the depth is at most one more than the maximum.
fn depth(model: &Model, data: &DataType) -> usize {
    match data {
        DataType::Sequence(element, _) | DataType::Array(element, _) => 1 + depth(model, element),
        DataType::Named(id) => match &model.item(*id).kind {
            ItemKind::Alias(inner) => 1 + depth(model, inner),
            _ => 1,
        },
        _ => 1,
    }
}

/// Returns the bound of a member and that of its elements; `None` if there are deeper ones.
pub(crate) fn bounds(model: &Model, data: &DataType) -> Option<(u32, u32)> {
    let element_of = |element: &DataType| match bounds(model, element)? {
        (own, 0) => Some(own),
        _ => None,
    };
    match model.resolved(data) {
        DataType::String(bound) | DataType::WideString(bound) => Some((*bound, 0)),
        DataType::Sequence(element, bound) => match model.resolved(element) {
            // Bounds of the elements of an array in a sequence are one level too deep.
            DataType::Array(..) if bounds(model, element)? != (0, 0) => None,
            _ => Some((*bound, element_of(element)?)),
        },
        DataType::Array(element, _) => match model.resolved(element) {
            DataType::Array(..) => bounds(model, element),
            _ => Some((0, element_of(element)?)),
        },
        DataType::Primitive(_) | DataType::Named(_) => Some((0, 0)),
    }
}
