//! DATA_REPRESENTATION and TYPE_CONSISTENCY_ENFORCEMENT (XTypes 7.6.3).
use super::id::{Policy, PolicyId};
use serde::{Deserialize, Serialize};
use spindle_xcdr::{TypeConsistency, XcdrVersion};
use std::fmt;

/// A representation of samples (XTypes 7.6.3.1.1, `DataRepresentationId_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[repr(i16)]
pub enum RepresentationId {
    /// XCDR version 1.
    Xcdr1 = 0,
    /// XML. No entity supports it.
    Xml = 1,
    /// XCDR version 2.
    Xcdr2 = 2,
}

impl RepresentationId {
    /// Returns the version of XCDR; `None` for XML.
    pub const fn version(self) -> Option<XcdrVersion> {
        match self {
            RepresentationId::Xcdr1 => Some(XcdrVersion::Xcdr1),
            RepresentationId::Xml => None,
            RepresentationId::Xcdr2 => Some(XcdrVersion::Xcdr2),
        }
    }
}

impl fmt::Display for RepresentationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RepresentationId::Xcdr1 => "XCDR",
            RepresentationId::Xml => "XML",
            RepresentationId::Xcdr2 => "XCDR2",
        })
    }
}

/// DATA_REPRESENTATION (XTypes 7.6.3.1). A writer uses the first, a reader accepts all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DataRepresentationQosPolicy {
    /// The representations, the preferred one first. An empty list is XCDR version 1.
    pub value: Vec<RepresentationId>,
}

impl DataRepresentationQosPolicy {
    /// Returns the list in force.
    pub fn list(&self) -> &[RepresentationId] {
        if self.value.is_empty() { &[RepresentationId::Xcdr1] } else { &self.value }
    }
}

impl Policy for DataRepresentationQosPolicy {
    const ID: PolicyId = PolicyId::DataRepresentation;
}

impl fmt::Display for DataRepresentationQosPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, id) in self.list().iter().enumerate() {
            write!(f, "{}{id}", if index == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

/// TYPE_CONSISTENCY_ENFORCEMENT (XTypes 7.6.3.7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TypeConsistencyEnforcementQosPolicy {
    /// The differences that are allowed.
    pub rules: TypeConsistency,
    /// Whether a writer without a type description is refused. Otherwise equal type names suffice.
    pub force_type_validation: bool,
}

impl Policy for TypeConsistencyEnforcementQosPolicy {
    const ID: PolicyId = PolicyId::TypeConsistencyEnforcement;
}

impl fmt::Display for TypeConsistencyEnforcementQosPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rules = &self.rules;
        f.write_str(if rules.allow_type_coercion { "ALLOW_TYPE_COERCION" } else { "DISALLOW_TYPE_COERCION" })?;
        for (set, name) in [
            (rules.ignore_sequence_bounds, "ignore_sequence_bounds"),
            (rules.ignore_string_bounds, "ignore_string_bounds"),
            (rules.ignore_member_names, "ignore_member_names"),
            (rules.prevent_type_widening, "prevent_type_widening"),
            (self.force_type_validation, "force_type_validation"),
        ] {
            write!(f, "{}{name}", if set { ", " } else { ", not " })?;
        }
        Ok(())
    }
}
