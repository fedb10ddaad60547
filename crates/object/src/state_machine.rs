//! The trait that the attribute [`commands`](crate::commands) implements, and typed calls.
use crate::context::Context;
use crate::settings::Settings;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::marker::PhantomData;
use twox_hash::XxHash3_64;

/// The format of messages and snapshots, which is part of the [fingerprint].
pub(crate) const FORMAT: u8 = 1;

/// A type whose methods are commands. Use the attribute [`commands`](crate::commands) to implement
/// it.
///
/// A command may depend on nothing but the state, its arguments and the [`Context`]: no clock, no
/// randomness, no file, and no order of a `HashMap`. Otherwise the members diverge.
pub trait StateMachine: Serialize + DeserializeOwned + Send + Sync + 'static {
    /// The commands.
    const COMMANDS: &'static [CommandSpec];
    /// The number of the format of the state, chosen by the application. Another number makes
    /// another [fingerprint].
    const STATE: u32;
    /// The highest version of a command.
    const VERSION: u32;

    /// Executes a command, and returns its encoded reply.
    ///
    /// # Errors
    /// [`ExecuteError`]. Except for [`ExecuteError::Reply`], the state is unchanged.
    fn execute(&mut self, command: u32, arguments: &[u8], context: &mut Context) -> Result<Vec<u8>, ExecuteError>;

    /// The queries.
    const QUERIES: &'static [QuerySpec] = &[];

    /// Answers a query, and returns the encoded reply.
    ///
    /// # Errors
    /// [`ExecuteError`].
    fn answer(&self, query: u32, _arguments: &[u8]) -> Result<Vec<u8>, ExecuteError> {
        Err(ExecuteError::UnknownCommand { id: query })
    }
}

/// The description of a command.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Debug)]
pub struct CommandSpec {
    /// Its number: given, or the FNV-1a hash of its name. The order of methods does not matter.
    pub id: u32,
    /// Its name.
    pub name: &'static str,
    /// The version that the group needs before the command is executed, from 1.
    pub since: u32,
    /// The types of its arguments and of its reply, as text.
    pub signature: &'static str,
}

/// The description of a query. Queries are no part of the [fingerprint]: they change no state, and a
/// member that does not know one says so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QuerySpec {
    /// Its number: given, or the FNV-1a hash of its name.
    pub id: u32,
    /// Its name.
    pub name: &'static str,
    /// The types of its arguments and of its reply, as text.
    pub signature: &'static str,
}

impl QuerySpec {
    /// Returns a digest of the signature, which members compare.
    pub(crate) fn types(&self) -> u64 {
        XxHash3_64::oneshot(self.signature.as_bytes())
    }
}

/// Why a command was not executed, or a query not answered.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExecuteError {
    /// The type has no command, or no query, of this number.
    #[error("there is no command or query {id}")]
    UnknownCommand {
        /// The number.
        id: u32,
    },
    /// The arguments can't be decoded.
    #[error("the arguments can't be decoded: {0}")]
    Arguments(postcard::Error),
    /// The command was executed, but its reply can't be encoded.
    #[error("the reply can't be encoded: {0}")]
    Reply(postcard::Error),
}

/// A command with its arguments, for a `T`, with a reply of type `R`.
#[derive(Debug)]
#[must_use = "a call does nothing until it is given to a handle"]
pub struct Call<T, R> {
    pub(crate) command: CommandSpec,
    pub(crate) arguments: Result<Vec<u8>, postcard::Error>,
    types: PhantomData<fn(T) -> R>,
}

impl<T, R> Call<T, R> {
    /// Encodes the arguments, a tuple. The functions that [`commands`](crate::commands) generates
    /// call this.
    pub fn new(command: CommandSpec, arguments: &impl Serialize) -> Call<T, R> {
        Call { command, arguments: postcard::to_stdvec(arguments), types: PhantomData }
    }

    /// Returns the description of the command.
    pub fn command(&self) -> &CommandSpec {
        &self.command
    }
}

impl<T, R> Clone for Call<T, R> {
    fn clone(&self) -> Call<T, R> {
        Call { command: self.command, arguments: self.arguments.clone(), types: PhantomData }
    }
}

/// A query with its arguments, for a `T`, with a reply of type `R`.
#[derive(Debug)]
#[must_use = "a query does nothing until it is given to a handle"]
pub struct Query<T, R> {
    pub(crate) spec: QuerySpec,
    pub(crate) arguments: Result<Vec<u8>, postcard::Error>,
    types: PhantomData<fn(T) -> R>,
}

impl<T, R> Query<T, R> {
    /// Encodes the arguments, a tuple. The functions that [`commands`](crate::commands) generates
    /// call this.
    pub fn new(spec: QuerySpec, arguments: &impl Serialize) -> Query<T, R> {
        Query { spec, arguments: postcard::to_stdvec(arguments), types: PhantomData }
    }

    /// Returns the description of the query.
    pub fn spec(&self) -> &QuerySpec {
        &self.spec
    }
}

impl<T, R> Clone for Query<T, R> {
    fn clone(&self) -> Query<T, R> {
        Query { spec: self.spec, arguments: self.arguments.clone(), types: PhantomData }
    }
}

/// Returns the command of this number.
pub(crate) fn command<T: StateMachine>(id: u32) -> Option<&'static CommandSpec> {
    T::COMMANDS.iter().find(|command| command.id == id)
}

/// Decodes the arguments of a command, which are a tuple. The code that
/// [`commands`](crate::commands) generates calls this.
///
/// # Errors
/// [`ExecuteError::Arguments`], also if bytes are left.
pub fn decode_arguments<'a, A: serde::Deserialize<'a>>(bytes: &'a [u8]) -> Result<A, ExecuteError> {
    match postcard::take_from_bytes(bytes) {
        Ok((arguments, [])) => Ok(arguments),
        Ok(_) => Err(ExecuteError::Arguments(postcard::Error::DeserializeBadEncoding)),
        Err(error) => Err(ExecuteError::Arguments(error)),
    }
}

/// Encodes the reply of a command. The code that [`commands`](crate::commands) generates calls this.
///
/// # Errors
/// [`ExecuteError::Reply`].
pub fn encode_reply(reply: &impl Serialize) -> Result<Vec<u8>, ExecuteError> {
    postcard::to_stdvec(reply).map_err(ExecuteError::Reply)
}

/// Returns a number for all that members have to agree on at this version: the format of messages,
/// the number of the state's format, the settings, and all commands up to the version.
///
/// Types are compared by their names. A change inside a type that a command uses is not noticed.
pub fn fingerprint<T: StateMachine>(settings: &Settings, version: u32) -> u64 {
    let mut commands: Vec<_> = T::COMMANDS.iter().filter(|command| command.since <= version).collect();
    commands.sort_by_key(|command| command.id);
    let bytes = postcard::to_stdvec(&(FORMAT, T::STATE, settings, commands));
    XxHash3_64::oneshot(&bytes.expect("numbers, texts and sequences of known length"))
}
