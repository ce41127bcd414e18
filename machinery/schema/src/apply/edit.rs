//! `FieldsV1` less some fields and with others, from text to text: most of a record stays as it is, and is copied. The text
//! behind the last member of the root that changes is not even read.

use super::fields_v1::element;
use super::initial_fields::Open;
use super::set::{Element, FieldSet, Member};
use crate::MAX_DEPTH;
use crate::json::{stop_from, write_string};
use crate::tree::Tree;

/// The text of a set without `gone` and with `added`; `None` where the text is not in the order in which this module
/// writes it, or is none: the caller has to take the long way.
pub fn edited(text: &str, gone: &[&FieldSet], added: &FieldSet) -> Option<String> {
    let mut cursor = Cursor {
        text: text.as_bytes(),
        at: 0,
    };
    let mut out = Vec::with_capacity(text.len() + 64);
    let gone: Vec<&FieldSet> = gone.iter().copied().filter(|set| !set.is_empty()).collect();
    let any = cursor.object(&mut out, Edit::root(&gone, added), 0)?;
    if cursor.at != cursor.text.len() {
        return None;
    }
    match any {
        true => String::from_utf8(out).ok(),
        false => Some("{}".to_owned()),
    }
}

/// Changes at and below one path.
struct Edit<'s> {
    /// The path itself goes, where it is there.
    taken: bool,
    /// The path itself comes.
    own: bool,
    gone: Vec<&'s FieldSet>,
    added: Option<&'s FieldSet>,
}

impl<'s> Edit<'s> {
    fn root(gone: &[&'s FieldSet], added: &'s FieldSet) -> Self {
        Self {
            taken: false,
            own: false,
            gone: gone.to_vec(),
            added: Some(added).filter(|added| !added.is_empty()),
        }
    }

    fn changes_below(&self) -> bool {
        !self.gone.is_empty() || self.added.is_some()
    }

    /// The last element at which anything is to happen.
    fn last(&self) -> Option<&'s Element> {
        let sets = self.gone.iter().copied().chain(self.added);
        sets.filter_map(|set| set.0.last_key_value())
            .map(|(element, _)| element)
            .max()
    }

    fn is_nothing(&self) -> bool {
        !self.taken && !self.own && !self.changes_below()
    }

    /// Changes at and below an element; `added` is the member of the set that is added.
    fn at(&self, element: &Element, added: Option<&'s Member>) -> Self {
        let gone = self.gone.iter().filter_map(|set| set.0.get(element));
        let gone: Vec<&Member> = gone.collect();
        Self {
            taken: gone.iter().any(|member| member.own),
            own: added.is_some_and(|member| member.own),
            gone: gone
                .iter()
                .map(|member| &member.below)
                .filter(|below| !below.is_empty())
                .collect(),
            added: added
                .map(|member| &member.below)
                .filter(|below| !below.is_empty()),
        }
    }
}

struct Cursor<'t> {
    text: &'t [u8],
    at: usize,
}

impl<'t> Cursor<'t> {
    fn takes(&mut self, byte: u8) -> bool {
        let there = self.text.get(self.at) == Some(&byte);
        self.at += usize::from(there);
        there
    }

    /// Copies an object with its changes; says whether anything is left of it.
    fn object(&mut self, out: &mut Vec<u8>, edit: Edit<'_>, depth: usize) -> Option<bool> {
        if depth > MAX_DEPTH {
            return None;
        }
        if edit.is_nothing() {
            out.extend_from_slice(self.skipped()?);
            return Some(true);
        }
        if !self.takes(b'{') {
            return None;
        }
        let mut more = !self.takes(b'}');
        let mut there = !more;
        if more && self.text[self.at..].starts_with(b"\".\":{}") {
            self.at += b"\".\":{}".len();
            there = true;
            more = self.next()?;
        }
        // What is the root has no path that could be in the set.
        let own = depth > 0 && ((there && !edit.taken) || edit.own);
        let mut open = Open::new(out, own);
        let mut pending = edit.added.into_iter().flat_map(|added| added.0.iter()).peekable();
        let mut last: Option<Element> = None;
        let end = if depth == 0 { edit.last() } else { None };
        while more {
            // The members of a root are fields, in one order in every text.
            if !edit.changes_below() || (depth == 0 && last.as_ref() >= end) {
                open.copy(self.rest(depth)?.strip_suffix(b"}")?);
                break;
            }
            let key = self.string()?;
            if !self.takes(b':') {
                return None;
            }
            let own = read_key(key)?;
            if last.as_ref().is_some_and(|last| *last >= own) {
                return None;
            }
            while let Some((element, member)) = pending.next_if(|(element, _)| **element < own) {
                open.add(element, member);
            }
            let added = pending
                .next_if(|(element, _)| **element == own)
                .map(|(_, member)| member);
            let mut failed = false;
            let below = edit.at(&own, added);
            open.member(
                |out| out.extend_from_slice(key),
                |out| {
                    let any = self.object(out, below, depth + 1);
                    failed = any.is_none();
                    any.unwrap_or_default()
                },
            );
            if failed {
                return None;
            }
            last = Some(own);
            more = self.next()?;
        }
        for (element, member) in pending {
            open.add(element, member);
        }
        Some(open.close())
    }

    /// The members that are left of an object, and what ends it.
    fn rest(&mut self, depth: usize) -> Option<&'t [u8]> {
        let start = self.at;
        if depth == 0 {
            // Nothing follows: it need not be read.
            self.at = self.text.len();
            return self.text.get(start..).filter(|rest| rest.ends_with(b"}}"));
        }
        self.skip_to_end(1)?;
        self.text.get(start..self.at)
    }

    /// Reads on behind a member: whether another one follows.
    fn next(&mut self) -> Option<bool> {
        if self.takes(b',') {
            return Some(true);
        }
        self.takes(b'}').then_some(false)
    }

    /// A string, with its quotes.
    fn string(&mut self) -> Option<&'t [u8]> {
        let start = self.at;
        if !self.takes(b'"') {
            return None;
        }
        loop {
            self.at = stop_from(self.text, self.at);
            match self.text.get(self.at)? {
                b'\\' => self.at += 2,
                b'"' => {
                    self.at += 1;
                    return self.text.get(start..self.at);
                }
                // Nothing that this module has written.
                _ => return None,
            }
        }
    }

    /// A whole object.
    fn skipped(&mut self) -> Option<&'t [u8]> {
        let start = self.at;
        if !self.takes(b'{') {
            return None;
        }
        self.skip_to_end(1)?;
        self.text.get(start..self.at)
    }

    /// Goes behind the end of the outermost of so many objects.
    fn skip_to_end(&mut self, mut depth: usize) -> Option<()> {
        while depth > 0 {
            match self.text.get(self.at)? {
                b'"' => {
                    self.string()?;
                    continue;
                }
                b'{' => depth += 1,
                b'}' => depth -= 1,
                _ => {}
            }
            self.at += 1;
        }
        Some(())
    }
}

/// The element of a key in its quotes.
fn read_key(key: &[u8]) -> Option<Element> {
    let text = std::str::from_utf8(key).ok()?;
    if !text.contains('\\') {
        return element(text.get(1..text.len() - 1)?).ok()?;
    }
    element(Tree::from_json(text).ok()?.root().as_str()?).ok()?
}

impl Open<'_> {
    fn add(&mut self, element: &Element, member: &Member) {
        self.member(
            |out| write_string(out, &super::fields_v1::name(element)),
            |out| {
                member.below.write(out, member.own && !member.below.is_empty());
                true
            },
        );
    }
}
