//! Publishers and subscribers (DDS 2.2.2.4.1, 2.2.2.5.2).
use crate::data_reader::DataReader;
use crate::data_writer::DataWriter;
use crate::participant_core::ParticipantCore;
use crate::topic::Topic;
use spindle_dds_core::qos::{DataReaderQos, DataWriterQos, PublisherQos, QosSet, SubscriberQos};
use spindle_dds_core::{DdsError, Guid, InstanceHandle};
use spindle_xcdr::DdsType;
use std::sync::Arc;

/// Declares a publisher or a subscriber.
macro_rules! factory {
    ($(#[$doc:meta])* $name:ident, $qos:ident, $create:ident, $endpoint:ident, $endpoint_qos:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub struct $name {
            participant: Arc<ParticipantCore>,
            guid: Guid,
            qos: Arc<$qos>,
        }

        impl $name {
            pub(crate) fn create(participant: &Arc<ParticipantCore>, qos: $qos) -> Result<$name, DdsError> {
                participant.check()?;
                qos.check(&crate::config::supported())?;
                let guid = participant.new_guid();
                Ok($name { participant: Arc::clone(participant), guid, qos: Arc::new(qos) })
            }

            #[doc = concat!("Creates a ", $what, " of a topic. It waits for no agreement.")]
            ///
            /// # Errors
            /// `InconsistentPolicy` and `Unsupported` with the policy; `PreconditionNotMet` for a topic of another
            /// participant; how the participant ended.
            pub fn $create<T: DdsType + 'static>(
                &self,
                topic: &Topic<T>,
                qos: $endpoint_qos,
            ) -> Result<$endpoint<T>, DdsError> {
                $endpoint::create(&self.participant, (self.guid, &self.qos), topic, qos)
            }

            /// Returns its policies: `get_qos`.
            pub fn qos(&self) -> &$qos {
                &self.qos
            }

            /// Returns its identity.
            pub fn guid(&self) -> Guid {
                self.guid
            }

            /// Returns its handle: `get_instance_handle`.
            pub fn instance_handle(&self) -> InstanceHandle {
                self.guid.into()
            }
        }
    };
}

factory! {
    /// A publisher: writers with common policies. Clones are the same publisher.
    Publisher, PublisherQos, create_datawriter, DataWriter, DataWriterQos, "writer"
}

factory! {
    /// A subscriber: readers with common policies. Clones are the same subscriber.
    Subscriber, SubscriberQos, create_datareader, DataReader, DataReaderQos, "reader"
}
