//! The name of a log: one page, written twice.
use super::{Binding, begin_page, is_page, put, seal_page, u32_at};
use crate::limits::{FORMAT, LOG_NAME_BYTES_MAX, PAGE_BYTES};

const MAGIC: &[u8; 8] = b"SPNDLNAM";
const KIND_NAME: u32 = 8;
const NAME_OFFSET: usize = 40;
/// Space for longer names, so that a higher maximum needs no other format.
const NAME_SPACE: usize = 128;
const NAME_END: usize = NAME_OFFSET + NAME_SPACE;

/// The content of a name file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct LogName {
    pub(crate) name: String,
    /// Whether both copies are valid and equal.
    pub(crate) is_whole: bool,
}

/// Returns the bytes of a name file.
pub(crate) fn encode_name(name: &str, binding: Binding) -> Vec<u8> {
    let mut page = begin_page(MAGIC, binding);
    put(&mut page, 36, &(name.len() as u32).to_le_bytes());
    put(&mut page, NAME_OFFSET, name.as_bytes());
    seal_page(&mut page, NAME_END, binding.seed(KIND_NAME, &[]));
    page.repeat(2)
}

/// Returns the name in the bytes of a file, or the later format that the file has instead, if a
/// valid copy does not show that the format is damaged.
pub(crate) fn parse_name(file: &[u8], binding: Binding) -> Result<LogName, Option<u32>> {
    let page = |at: usize| file.get(at..).and_then(|page| parse_page(page, binding));
    let (first, second) = (page(0), page(PAGE_BYTES as usize));
    match (first, second) {
        (Some(first), Some(second)) if first == second => Ok(LogName { name: first, is_whole: true }),
        (Some(_), Some(_)) => Err(None),
        (Some(name), None) | (None, Some(name)) => Ok(LogName { name, is_whole: false }),
        (None, None) if file.len() >= 16 && file.starts_with(MAGIC) => {
            let found = u32_at(file, 12);
            Err((found > FORMAT && found < 1 << 16).then_some(found))
        }
        (None, None) => Err(None),
    }
}

fn parse_page(page: &[u8], binding: Binding) -> Option<String> {
    if !is_page(page, MAGIC, binding, NAME_END, binding.seed(KIND_NAME, &[])) {
        return None;
    }
    let length = u32_at(page, 36) as usize;
    let name = page.get(NAME_OFFSET..NAME_OFFSET + length.min(NAME_SPACE))?;
    String::from_utf8(name.to_vec()).ok().filter(|name| (1..=LOG_NAME_BYTES_MAX).contains(&name.len()))
}
