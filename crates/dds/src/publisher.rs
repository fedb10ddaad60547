//! Publishers and subscribers (DDS 2.2.2.4.1, 2.2.2.5.2).
use crate::data_reader::DataReader;
use crate::data_writer::DataWriter;
use crate::participant_core::ParticipantCore;
use crate::sync::lock;
use crate::topic::Topic;
use crate::writer_core::WriterCore;
use spindle_dds_core::policy::PresentationQosPolicyAccessScopeKind;
use spindle_dds_core::qos::{DataReaderQos, DataWriterQos, PublisherQos, QosSet, SubscriberQos};
use spindle_dds_core::{DdsError, Guid, InstanceHandle};
use spindle_xcdr::DdsType;
use std::sync::{Arc, Mutex, Weak};

/// The endpoints that a publisher or a subscriber has created, and the coherent set that is open.
#[derive(Debug, Default)]
pub(crate) struct Endpoints {
    writers: Vec<Weak<WriterCore>>,
    /// The number of the newest set, and the begins without an end.
    set: u64,
    depth: u32,
    /// Whether a part of the set was given up.
    is_broken: bool,
}

impl Drop for Endpoints {
    /// The publisher is no more, so no set of it ends.
    fn drop(&mut self) {
        if self.depth > 0 {
            let number = self.set;
            self.writers.iter().filter_map(Weak::upgrade).for_each(|writer| writer.abandon_set(number));
        }
    }
}

impl Endpoints {
    /// Adds a writer. It takes part in the set that is open.
    pub(crate) fn add(&mut self, writer: &Arc<WriterCore>) {
        self.writers.retain(|own| own.strong_count() > 0);
        self.writers.push(Arc::downgrade(writer));
        if self.depth > 0 {
            writer.begin_set(self.set);
        }
    }
}

/// Declares a publisher or a subscriber.
macro_rules! factory {
    ($(#[$doc:meta])* $name:ident, $qos:ident, $create:ident, $endpoint:ident, $endpoint_qos:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub struct $name {
            pub(crate) participant: Arc<ParticipantCore>,
            pub(crate) guid: Guid,
            pub(crate) qos: Arc<$qos>,
            pub(crate) endpoints: Arc<Mutex<Endpoints>>,
        }

        impl $name {
            pub(crate) fn create(participant: &Arc<ParticipantCore>, qos: $qos) -> Result<$name, DdsError> {
                participant.check()?;
                qos.check(&crate::config::supported())?;
                let guid = participant.new_guid();
                let endpoints = Arc::default();
                Ok($name { participant: Arc::clone(participant), guid, qos: Arc::new(qos), endpoints })
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
                let endpoint = $endpoint::create(&self.participant, (self.guid, &self.qos), topic, qos)?;
                endpoint.writer_core().into_iter().for_each(|writer| lock(&self.endpoints).add(writer));
                Ok(endpoint)
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

impl Publisher {
    /// Begins a coherent set: the changes that each writer of the publisher makes until the end
    /// (`begin_coherent_changes`, DDS 2.2.2.4.1.10). Readers with coherent access see all of them at once, or none: if
    /// the process fails before the end, the set is given up at all readers. Sets may contain each other; the
    /// outermost one counts.
    ///
    /// # Errors
    /// `PreconditionNotMet` if PRESENTATION of the publisher has no coherent access at TOPIC scope.
    pub fn begin_coherent_changes(&self) -> Result<(), DdsError> {
        let presentation = &self.qos.presentation;
        if !presentation.coherent_access || presentation.access_scope < PresentationQosPolicyAccessScopeKind::Topic {
            return Err(DdsError::PreconditionNotMet {
                what: format!("PRESENTATION of the publisher is {presentation}"),
                remedy: "create the publisher with coherent_access and the access scope TOPIC",
            });
        }
        let mut endpoints = lock(&self.endpoints);
        endpoints.depth += 1;
        if endpoints.depth == 1 {
            endpoints.set += 1;
            let number = endpoints.set;
            endpoints.writers.iter().filter_map(Weak::upgrade).for_each(|writer| writer.begin_set(number));
        }
        Ok(())
    }

    /// Ends a coherent set (`end_coherent_changes`, DDS 2.2.2.4.1.11).
    ///
    /// # Errors
    /// `PreconditionNotMet` without a begin; as [`DataWriter::write`], and then the set can be ended again; `Error` if a
    /// change of a BEST_EFFORT writer found no room, or a writer was deleted before, and its part was given up.
    pub fn end_coherent_changes(&self) -> Result<(), DdsError> {
        let mut endpoints = lock(&self.endpoints);
        if endpoints.depth == 0 {
            let what = "no coherent set is open".to_owned();
            return Err(DdsError::PreconditionNotMet { what, remedy: "call begin_coherent_changes first" });
        }
        if endpoints.depth == 1 {
            let mut failed = Ok(());
            let writers: Vec<_> = endpoints.writers.iter().filter_map(Weak::upgrade).collect();
            for writer in writers {
                match writer.end_set() {
                    Ok(is_whole) => endpoints.is_broken |= !is_whole,
                    Err(error) => failed = Err(error),
                }
            }
            failed?;
        }
        endpoints.depth -= 1;
        if endpoints.depth == 0 && std::mem::take(&mut endpoints.is_broken) {
            return Err(DdsError::Error("a part of the coherent set found no room, and was given up".to_owned()));
        }
        Ok(())
    }
}
