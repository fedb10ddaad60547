//! The outcome of commands of the directory for the entities of this process.
use crate::shared::State;
use spindle_dds_core::DdsError;
use spindle_dds_core::directory::{Applied, DirectoryCommand, DirectoryEvent};
use spindle_dds_core::status::TopicStatuses;
use tracing::warn;

/// Work that is done when the state is not locked.
pub(crate) type Task = Box<dyn FnOnce()>;

/// Returns what an event changes in the statuses of the entities of this process.
pub(crate) fn count_event(state: &State, event: &DirectoryEvent) -> Option<Task> {
    match event {
        DirectoryEvent::Mismatched { writer, reader, policies, .. } => {
            let (own_writer, own_reader) = (state.writers.get(writer).cloned(), state.readers.get(reader).cloned());
            if own_writer.is_none() && own_reader.is_none() {
                return None;
            }
            if let Some(directory) = state.replica.directory()
                && let Ok(Err(reasons)) = directory.why(*writer, *reader)
            {
                let reasons: Vec<String> = reasons.iter().map(ToString::to_string).collect();
                warn!(target: "spindle::dds", %writer, %reader, "they don't match: {}", reasons.join("; "));
            }
            let policies = policies.clone();
            Some(Box::new(move || {
                own_writer.into_iter().for_each(|own| own.count_incompatible(&policies));
                own_reader.into_iter().for_each(|own| own.count_incompatible(&policies));
            }))
        }
        DirectoryEvent::InconsistentTopic { topic, other, reason } => {
            let topics: Vec<_> =
                [topic, other].into_iter().filter_map(|guid| state.topics.get(guid).cloned()).collect();
            for own in &topics {
                warn!(target: "spindle::dds", topic = own.name, "another topic of this name has another type: {reason}");
            }
            let count = move || topics.iter().for_each(|own| own.with_statuses(TopicStatuses::count_inconsistent));
            Some(Box::new(count))
        }
        _ => None,
    }
}

/// Takes over the results of a command of this participant.
pub(crate) fn settle(state: &mut State, command: &DirectoryCommand, applied: &Applied) -> Vec<Task> {
    let mut tasks: Vec<Task> = Vec::new();
    if !matches!(command, DirectoryCommand::Change { .. }) {
        return tasks;
    }
    let guids = state.in_flight.pop_front().unwrap_or_default();
    for (guid, result) in guids.into_iter().zip(&applied.results) {
        let Err(error) = result else { continue };
        warn!(target: "spindle::dds", entity = %guid, "the directory has refused it: {error}");
        let why = DdsError::PreconditionNotMet {
            what: format!("the directory has refused it: {error}"),
            remedy: "create it anew, in another way",
        };
        let (reader, writer) = (state.readers.get(&guid).cloned(), state.writers.get(&guid).cloned());
        tasks.push(Box::new(move || {
            reader.into_iter().for_each(|own| own.end(why.clone()));
            writer.into_iter().for_each(|own| own.end(why.clone()));
        }));
    }
    tasks
}
