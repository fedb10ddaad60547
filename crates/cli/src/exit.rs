//! Exit statuses, and the errors that lead to them.
use crate::lines;
use rustix::io::Errno;
use serde_json::json;
use spindle::settings::SettingsError;
use spindle::{Ended, JoinError};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::{fmt, io};

/// The section of the help about exit statuses.
pub(crate) const HELP: &str = "\
Exit status:
  0    all went well
  1    it failed: input, output, memory, no group in time, (log) damage, or (demo) the members do not agree
  2    wrong arguments or settings
  3    (member, cast, receive) the group went on without it: it was evicted, or asked to leave before its end;
       (demo) a member was lost without --kill
  129  stopped by SIGHUP; 130: by SIGINT (Ctrl-C); 143: by SIGTERM. The first signal stops in order, the second at once
  141  the reader of the standard output is gone (as after `| head`)";

/// Status for every other error.
pub(crate) const FAILED: u8 = 1;
/// Status if the arguments or settings make no sense.
pub(crate) const USAGE: u8 = 2;
/// Status if the group continued without this member.
pub(crate) const ENDED: u8 = 3;
/// Status if the reader of the standard output is gone: that of a process that SIGPIPE ends.
const CLOSED_PIPE: u8 = 128 + 13;

/// The reason why the command ends with a status other than 0.
#[derive(Debug)]
pub(crate) struct CliError {
    pub(crate) status: u8,
    pub(crate) error: anyhow::Error,
    /// True if the failure is printed as JSON.
    json: bool,
    /// True if a signal stopped the command in order, which is no error.
    is_stop: bool,
}

/// Describes how a started process was killed; `None`: it ended by itself.
pub(crate) fn death(status: &ExitStatus) -> Option<String> {
    status.signal().map(|signal| match signal {
        9 => "was killed (signal 9)".to_string(),
        signal => format!("died of signal {signal}"),
    })
}

/// The result of a subcommand.
pub(crate) type CliResult<T = ()> = Result<T, CliError>;

impl CliError {
    pub(crate) fn new(status: u8, message: impl fmt::Display) -> CliError {
        CliError { status, error: anyhow::anyhow!("{message}"), json: false, is_stop: false }
    }

    /// Returns the failure of a command that a signal stopped before it could end in order.
    pub(crate) fn interrupted(signal: i32, when: impl fmt::Display) -> CliError {
        CliError::new(128 + signal as u8, format_args!("stopped by signal {signal} {when}"))
    }

    /// Returns the end of a command that a signal stopped in order. It is printed as no error, and
    /// its status is not 0 all the same.
    pub(crate) fn stopped(signal: i32, when: impl fmt::Display) -> CliError {
        CliError { is_stop: true, ..CliError::interrupted(signal, when) }
    }

    /// Returns the same failure, printed as a JSON object if `json`.
    pub(crate) fn told_as_json(mut self, json: bool) -> CliError {
        self.json = json;
        self
    }

    /// Prints the failure and returns the exit status. Prints nothing, unless as JSON, if the
    /// reader of the standard output is gone.
    pub(crate) fn report(&self) -> u8 {
        let message = self.message();
        let is_closed_pipe = is_closed_pipe(&message);
        let status = if is_closed_pipe { CLOSED_PIPE } else { self.status };
        match (self.json, self.is_stop) {
            (true, is_stop) => {
                let event = if is_stop { "stopped" } else { "error" };
                lines::tell(json!({"event": event, "message": message, "status": status}));
            }
            (false, _) if is_closed_pipe => {}
            (false, true) => lines::tell(message),
            (false, false) => lines::tell(format_args!("error: {message}")),
        }
        status
    }

    /// Returns the error, and a remedy where the system's own text gives none.
    fn message(&self) -> String {
        let mut message = format!("{:#}", self.error);
        // The text is compared, because most errors contain the text of their causes, and not the
        // causes.
        if message.contains(&io::Error::from(Errno::MFILE).to_string()) {
            message += "; raise the limit of open files (`ulimit -n`)";
        }
        message
    }
}

/// Checks whether a message reports that the reader of the standard output is gone. The text is
/// compared, as some errors contain only the text of their cause.
fn is_closed_pipe(message: &str) -> bool {
    message.contains("the standard output") && message.contains(&io::Error::from(Errno::PIPE).to_string())
}

impl From<anyhow::Error> for CliError {
    fn from(error: anyhow::Error) -> CliError {
        CliError { status: FAILED, error, json: false, is_stop: false }
    }
}

impl From<JoinError> for CliError {
    fn from(error: JoinError) -> CliError {
        let status = match &error {
            JoinError::View(_) | JoinError::NoSubgroup | JoinError::Founders { .. } | JoinError::Name(_) => USAGE,
            _ => FAILED,
        };
        // The error's message contains its causes already.
        CliError::new(status, error)
    }
}

impl From<SettingsError> for CliError {
    fn from(error: SettingsError) -> CliError {
        match &error {
            SettingsError::Tls(_) => CliError::new(FAILED, error),
            SettingsError::Wrong(problems) if problems.len() > 1 => {
                let lines = error.to_string().replace('\n', "\n  ");
                CliError::new(USAGE, format_args!("the settings are wrong:\n  {lines}"))
            }
            _ => CliError::new(USAGE, error),
        }
    }
}

impl From<Ended> for CliError {
    fn from(ended: Ended) -> CliError {
        CliError::new(ENDED, ended)
    }
}
