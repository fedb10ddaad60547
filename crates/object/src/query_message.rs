//! Queries of an object, and their answers, on their way between two members.
//!
//! ```text
//! query = "SPQ" | format (1 byte) | an QueryRequest, encoded by postcard
//! answer = "SPA" | format (1 byte) | an QueryReply, encoded by postcard
//! ```
use serde::{Deserialize, Serialize};

/// The format of queries and answers.
const FORMAT: u8 = 1;
const QUERY: [u8; 4] = [b'S', b'P', b'Q', FORMAT];
const ANSWER: [u8; 4] = [b'S', b'P', b'A', FORMAT];

/// A query.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub(crate) struct QueryRequest<'a> {
    /// The number of messages that the state needs to contain.
    pub(crate) after: u64,
    /// How long the member may wait for them, in milliseconds.
    pub(crate) wait_ms: u64,
    /// The number of the query.
    pub(crate) query: u32,
    /// The digest of the types of its arguments and of its reply.
    pub(crate) types: u64,
    /// The encoded arguments.
    pub(crate) arguments: &'a [u8],
}

/// An answer.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub(crate) struct QueryReply<'a> {
    /// The number of messages that the state contains.
    pub(crate) messages: u64,
    #[serde(borrow)]
    pub(crate) answer: QueryOutcome<'a>,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub(crate) enum QueryOutcome<'a> {
    /// The encoded reply.
    Done(&'a [u8]),
    /// The state did not come to the messages in time.
    Behind,
    /// The program has no query of this number.
    Unknown,
    /// The query has other types in this program.
    OtherTypes,
    /// The arguments can't be decoded, or the reply can't be encoded.
    NotEncoded,
    /// The query has panicked.
    Panicked,
    /// The machine of this member has stopped.
    Stopped,
}

impl QueryRequest<'_> {
    pub(crate) fn encode(&self) -> Vec<u8> {
        postcard::to_extend(self, QUERY.to_vec()).expect("numbers and bytes of known length")
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<QueryRequest<'_>> {
        decode(QUERY, bytes)
    }
}

impl QueryReply<'_> {
    pub(crate) fn encode(&self) -> Vec<u8> {
        postcard::to_extend(self, ANSWER.to_vec()).expect("numbers and bytes of known length")
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<QueryReply<'_>> {
        decode(ANSWER, bytes)
    }
}

fn decode<'a, M: Deserialize<'a>>(magic: [u8; 4], bytes: &'a [u8]) -> Option<M> {
    match postcard::take_from_bytes(bytes.strip_prefix(&magic)?) {
        Ok((message, [])) => Some(message),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// If this fails, members of two builds do not understand each other: restore the format, or give it
    /// another number.
    #[test]
    fn queries_and_answers_have_these_bytes() {
        let asking = QueryRequest { after: 300, wait_ms: 5, query: 0x0102_0304, types: 127, arguments: b"ab" };
        assert_eq!(hex(&asking.encode()), "53505101".to_owned() + "ac02" + "05" + "84868808" + "7f" + "026162");
        assert_eq!(QueryRequest::decode(&asking.encode()), Some(asking));
        let outcomes = [
            (QueryOutcome::Done(b"ab"), "00026162"),
            (QueryOutcome::Behind, "01"),
            (QueryOutcome::Unknown, "02"),
            (QueryOutcome::OtherTypes, "03"),
            (QueryOutcome::NotEncoded, "04"),
            (QueryOutcome::Panicked, "05"),
            (QueryOutcome::Stopped, "06"),
        ];
        for (answer, bytes) in outcomes {
            let answering = QueryReply { messages: 300, answer };
            assert_eq!(hex(&answering.encode()), "53504101".to_owned() + "ac02" + bytes);
            assert_eq!(QueryReply::decode(&answering.encode()), Some(answering));
        }
    }

    #[test]
    fn other_bytes_are_no_query_and_no_answer() {
        let asking = QueryRequest { after: 1, wait_ms: 1, query: 1, types: 1, arguments: b"" }.encode();
        let answering = QueryReply { messages: 1, answer: QueryOutcome::Behind }.encode();
        assert!(QueryRequest::decode(&answering).is_none() && QueryReply::decode(&asking).is_none());
        assert!((0..asking.len()).all(|end| QueryRequest::decode(&asking[..end]).is_none()));
        assert!((0..answering.len()).all(|end| QueryReply::decode(&answering[..end]).is_none()));
        assert!(QueryRequest::decode(&[&asking[..], &[0]].concat()).is_none());
        assert!(QueryReply::decode(b"SPA\x01\x01\x07").is_none());
    }
}
