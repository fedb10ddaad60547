//! USER_DATA, TOPIC_DATA and GROUP_DATA: bytes of the application, which travel with discovery.
use super::id::{Policy, PolicyId};
use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! data_policies {
    ($($(#[$doc:meta])* $name:ident = $id:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub struct $name {
            /// The bytes.
            pub value: Vec<u8>,
        }

        impl Policy for $name {
            const ID: PolicyId = PolicyId::$id;
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{} bytes", self.value.len())
            }
        }
    )*};
}

data_policies! {
    /// Bytes of a participant, a reader or a writer (DDS 2.2.3.1).
    UserDataQosPolicy = UserData;
    /// Bytes of a topic (DDS 2.2.3.2).
    TopicDataQosPolicy = TopicData;
    /// Bytes of a publisher or a subscriber (DDS 2.2.3.3).
    GroupDataQosPolicy = GroupData;
}
