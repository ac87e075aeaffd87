//! Metadata contexts for BLOCK_STATUS (NBD, "Metadata querying"): only `base:allocation` is supported.

use super::{
    ERROR_INVALID, ERROR_UNKNOWN, Handshake, OPTION_LIST_META_CONTEXT, OPTION_SET_META_CONTEXT, REPLY_ACK,
    answer,
};
use crate::message::ALLOCATION_ID;

const REPLY_META_CONTEXT: u32 = 4;

const ALLOCATION: &[u8] = b"base:allocation";
const NAMESPACE: &[u8] = b"base:";

/// The data of NBD_OPT_LIST_META_CONTEXT and NBD_OPT_SET_META_CONTEXT: the export's name (u32 length and
/// bytes), the number of queries u32, then each query (u32 length and bytes).
struct Queries<'a> {
    name: &'a [u8],
    queries: Vec<&'a [u8]>,
}

impl<'a> Queries<'a> {
    fn decode(data: &'a [u8]) -> Option<Queries<'a>> {
        let (name, data) = text(data)?;
        let (count, mut data) = data.split_first_chunk::<4>()?;
        // Each query has at least a length field, so the option's size bounds the count.
        let count = u32::from_be_bytes(*count) as usize;
        if count > data.len() / 4 {
            return None;
        }
        let mut queries = Vec::with_capacity(count);
        for _ in 0..count {
            let (query, rest) = text(data)?;
            queries.push(query);
            data = rest;
        }
        data.is_empty().then_some(Queries { name, queries })
    }
}

/// Splits off a string (u32 length and bytes); returns it and the rest.
fn text(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = data.split_first_chunk::<4>()?;
    rest.split_at_checked(u32::from_be_bytes(*length) as usize)
}

impl Handshake {
    /// Answers one of the two options. SET replaces the earlier selection even if it fails.
    pub(super) fn contexts(&mut self, option: u32, data: &[u8], out: &mut Vec<u8>) {
        let sets = option == OPTION_SET_META_CONTEXT;
        debug_assert!(sets || option == OPTION_LIST_META_CONTEXT);
        if sets {
            self.status = None;
        }
        if !self.structured {
            return answer(out, option, ERROR_INVALID, b"structured replies must be negotiated first");
        }
        let Some(Queries { name, queries }) = Queries::decode(data) else {
            return answer(
                out,
                option,
                ERROR_INVALID,
                b"the name and the queries do not match the length of the option",
            );
        };
        let Some(index) = self.find(name) else {
            return answer(out, option, ERROR_UNKNOWN, b"there is no such export");
        };
        let lists = |query: &&[u8]| !sets && *query == NAMESPACE;
        let wanted = queries.iter().any(|q| *q == ALLOCATION || lists(q)) || (!sets && queries.is_empty());
        if wanted {
            // In the answer to LIST the ID field is reserved.
            let id = if sets { ALLOCATION_ID } else { 0 };
            answer(out, option, REPLY_META_CONTEXT, &[&id.to_be_bytes(), ALLOCATION].concat());
            if sets {
                self.status = Some(index);
            }
        }
        answer(out, option, REPLY_ACK, &[]);
    }
}
