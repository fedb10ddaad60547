//! Old logs while they catch up, before the process is a member: a thread writes them as those of a
//! member.
use super::OldLogs;
use spindle_core::control::LogState;
use spindle_log::{Appender, Error, Writer};
use std::collections::BTreeMap;

impl OldLogs {
    /// Lets `run` append to the logs, by name. Appenders that it puts in place of others continue the
    /// logs of those.
    ///
    /// # Errors
    /// Those of the log: nothing more reaches the disk.
    pub(crate) fn lend<R>(self, run: impl FnOnce(&mut BTreeMap<String, Appender>) -> R) -> Result<(OldLogs, R), Error> {
        let OldLogs { store, path, record, numbers, .. } = self;
        let writer = Writer::start(store, |_| {})?;
        let appenders = numbers.iter().map(|(name, number)| Ok((name.clone(), writer.appender(*number)?)));
        let mut appenders = appenders.collect::<Result<BTreeMap<_, _>, Error>>()?;
        let result = run(&mut appenders);
        drop(appenders);
        let mut store = writer.stop()?;
        let mut states = vec![];
        for (name, number) in &numbers {
            let log = store.log(*number)?;
            states.push(LogState {
                name: name.clone(),
                last: log.last().map(super::position),
                clock: log.last_clock(),
            });
        }
        Ok((OldLogs { store, path, record, states, numbers }, result))
    }
}
