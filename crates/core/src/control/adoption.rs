//! The rule by which a process that joins takes over the settings of a running group.
use super::{Difference, SharedSettings};
use crate::mutation::mutation;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

/// Keys that begin with this describe how processes reach each other. No process takes them over.
const NEVER: &str = "network.";

/// A process's answer to a running group whose shared settings differ from its own.
///
/// Processes that only wait to create a group never adopt each other's settings: which of them
/// would be right?
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Adoption {
    /// Join only a group with exactly these settings.
    #[default]
    Never,
    /// Adopt the settings of the group, unless a setting differs that is one of these keys: its
    /// user gave it. Settings of the network are never adopted.
    Except(BTreeSet<String>),
}

impl Adoption {
    /// Decides whether a process with the settings `own` adopts those of a running `group`.
    ///
    /// # Errors
    /// The differences that prevent it. None are listed if the settings are too long to compare.
    pub fn check(&self, own: &SharedSettings, group: &SharedSettings) -> Result<(), Vec<Difference>> {
        let all = own.differences(group);
        let Adoption::Except(given) = self else { return Err(all) };
        if own.digest() != group.digest() && all.is_empty() {
            return Err(all);
        }
        let is_given = |key: &str| given.contains(key) && !mutation!(GivenKeyAdopted);
        let prevents = |difference: &Difference| !difference.is_adoptable() || is_given(&difference.key);
        let differing: Vec<Difference> = all.into_iter().filter(prevents).collect();
        if differing.is_empty() { Ok(()) } else { Err(differing) }
    }
}

impl Difference {
    /// Returns whether a process that joins may take over the group's value. Settings of the network
    /// describe the process itself.
    pub fn is_adoptable(&self) -> bool {
        !self.key.starts_with(NEVER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::ToString;
    use alloc::vec;

    fn settings(pairs: &[(&str, &str)]) -> SharedSettings {
        SharedSettings::new(pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())))
    }

    fn refused(given: &[&str], own: &SharedSettings, group: &SharedSettings) -> Option<Vec<String>> {
        let adoption = Adoption::Except(given.iter().map(ToString::to_string).collect());
        let keys = |all: Vec<Difference>| all.into_iter().map(|difference| difference.key).collect();
        adoption.check(own, group).err().map(keys)
    }

    #[test]
    fn only_a_given_key_that_differs_prevents_adoption() {
        let (own, group) = (settings(&[("size", "10"), ("window", "5")]), settings(&[("size", "10"), ("window", "7")]));
        assert_eq!(refused(&[], &own, &group), None);
        assert_eq!(refused(&["size"], &own, &group), None, "both have the same size");
        assert_eq!(refused(&["size", "window"], &own, &group), Some(vec!["window".into()]));
        assert_eq!(Adoption::Never.check(&own, &group), Err(own.differences(&group)));
    }

    #[test]
    fn a_given_key_that_the_group_does_not_have_prevents_adoption() {
        let (own, group) = (settings(&[("subgroup.a.window", "5")]), settings(&[("subgroup.b.window", "5")]));
        assert_eq!(refused(&[], &own, &group), None);
        assert_eq!(refused(&["subgroup.a.window"], &own, &group), Some(vec!["subgroup.a.window".into()]));
    }

    #[test]
    fn the_network_is_never_adopted() {
        let (own, group) = (settings(&[("network.fabric.kind", "tcp")]), settings(&[("network.fabric.kind", "ofi")]));
        assert_eq!(refused(&[], &own, &group), Some(vec!["network.fabric.kind".into()]));
    }

    #[test]
    fn settings_that_can_not_be_compared_are_not_adopted() {
        let many = (0..1000).map(|number| (format!("key.{number}"), "1".to_string()));
        let (own, group) = (settings(&[("size", "10")]), SharedSettings::new(many));
        assert_eq!(refused(&[], &own, &group), Some(vec![]));
        assert_eq!(refused(&[], &group, &group), None);
    }
}
