//! Finds the links of an HTML page as it passes through and rewrites them; everything else stays byte for byte.
//!
//! The tokens are those of the HTML standard as far as links need it: tags with their attributes, comments, and elements
//! whose text is no markup. A page comes in pieces, and at most one unfinished tag of it is held.

mod tag;

use super::links::Links;
use std::mem::take;
use tag::{Tag, TagState, is_space};

/// Attributes that hold a link, by element (upstream's list).
const LINKS: [(&str, &[&str]); 25] = [
    ("a", &["href"]),
    ("applet", &["codebase"]),
    ("area", &["href"]),
    ("audio", &["src"]),
    ("base", &["href"]),
    ("blockquote", &["cite"]),
    ("body", &["background"]),
    ("button", &["formaction"]),
    ("command", &["icon"]),
    ("del", &["cite"]),
    ("embed", &["src"]),
    ("form", &["action"]),
    ("frame", &["longdesc", "src"]),
    ("head", &["profile"]),
    ("html", &["manifest"]),
    ("iframe", &["longdesc", "src"]),
    ("img", &["longdesc", "src", "usemap"]),
    ("input", &["src", "usemap", "formaction"]),
    ("ins", &["cite"]),
    ("link", &["href"]),
    ("object", &["classid", "codebase", "data", "usemap"]),
    ("q", &["cite"]),
    ("script", &["src"]),
    ("source", &["src"]),
    ("video", &["poster", "src"]),
];
/// Elements whose text is no markup up to their own end tag.
const RAW_TEXT: [&str; 10] = [
    "iframe",
    "noembed",
    "noframes",
    "noscript",
    "plaintext",
    "script",
    "style",
    "textarea",
    "title",
    "xmp",
];
/// A longer tag passes as it is.
const TAG_BYTES_MAX: usize = 16 << 10;

/// The position of the next byte in the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Text,
    /// A start tag, whose bytes so far are held.
    Tag(TagState),
    /// A start tag of more than [`TAG_BYTES_MAX`], and the element of [`RAW_TEXT`] that it begins.
    LongTag(TagState, Option<&'static str>),
    /// With the dashes that came last: two and a `>` end it.
    Comment(u8),
    /// `<!doctype`, `<?xml`: up to the next `>`.
    Declaration,
    /// The text of an element of [`RAW_TEXT`].
    Raw(&'static str),
}

/// See the module.
#[derive(Debug)]
pub(super) struct LinkRewriter {
    links: Links,
    state: State,
    /// Bytes that cannot be decided on before more come.
    held: Vec<u8>,
    /// The start tag that has begun, at most [`TAG_BYTES_MAX`] of it.
    tag: Vec<u8>,
}

/// One step through the bytes at hand.
enum Step {
    /// So many bytes pass as they are.
    Pass(usize),
    /// So many bytes are done with.
    Done(usize),
    /// More bytes are needed, if any come.
    Wait,
}

impl LinkRewriter {
    pub(super) fn new(links: Links) -> Self {
        Self {
            links,
            state: State::Text,
            held: Vec::new(),
            tag: Vec::new(),
        }
    }

    /// Takes the next piece of the page and adds what is done to `out`, in time that is linear in the piece.
    pub(super) fn push(&mut self, piece: &[u8], out: &mut Vec<u8>) {
        let mut page = take(&mut self.held);
        page.extend_from_slice(piece);
        let mut at = 0;
        while at < page.len() {
            match self.step(&page[at..], out) {
                Step::Pass(length) => {
                    out.extend_from_slice(&page[at..at + length]);
                    at += length;
                }
                Step::Done(length) => at += length,
                Step::Wait => break,
            }
        }
        self.held = page.split_off(at);
    }

    /// The end of the page: an unfinished tag is text.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) {
        out.append(&mut self.tag);
        out.append(&mut self.held);
    }

    fn step(&mut self, page: &[u8], out: &mut Vec<u8>) -> Step {
        match self.state {
            State::Text => self.text(page),
            State::Tag(state) => self.tag(page, state, out),
            State::LongTag(state, element) => self.long_tag(page, state, element),
            State::Comment(dashes) => self.comment(page, dashes),
            State::Declaration => {
                let end = page.iter().position(|byte| *byte == b'>');
                if end.is_some() {
                    self.state = State::Text;
                }
                Step::Pass(end.map_or(page.len(), |end| end + 1))
            }
            State::Raw(element) => self.raw(page, element),
        }
    }

    fn text(&mut self, page: &[u8]) -> Step {
        match page.iter().position(|byte| *byte == b'<') {
            None => return Step::Pass(page.len()),
            Some(0) => {}
            Some(before) => return Step::Pass(before),
        }
        match page {
            [_, first, ..] if first.is_ascii_alphabetic() => {
                self.tag.push(b'<');
                self.state = State::Tag(TagState::Name);
                Step::Done(1)
            }
            [_, b'!', b'-', b'-', ..] => {
                self.state = State::Comment(2);
                Step::Pass(4)
            }
            [_] | [_, b'!'] | [_, b'!', b'-'] => Step::Wait,
            [_, b'!' | b'?', ..] => {
                self.state = State::Declaration;
                Step::Pass(2)
            }
            _ => Step::Pass(1),
        }
    }

    /// Takes bytes of a tag up to its end, or to the length from which on it is no longer held.
    fn tag(&mut self, page: &[u8], mut state: TagState, out: &mut Vec<u8>) -> Step {
        let room = TAG_BYTES_MAX - self.tag.len();
        for (at, byte) in page.iter().take(room).enumerate() {
            let Some(next) = state.next(*byte) else {
                self.tag.extend_from_slice(&page[..=at]);
                self.finish_tag(out);
                return Step::Done(at + 1);
            };
            state = next;
        }
        let taken = page.len().min(room);
        self.tag.extend_from_slice(&page[..taken]);
        self.state = State::Tag(state);
        if taken == room {
            self.state = State::LongTag(state, raw_text(&Tag::name(&self.tag)));
            out.append(&mut self.tag);
        }
        Step::Done(taken)
    }

    fn long_tag(&mut self, page: &[u8], mut state: TagState, element: Option<&'static str>) -> Step {
        for (at, byte) in page.iter().enumerate() {
            let Some(next) = state.next(*byte) else {
                self.state = element.map_or(State::Text, State::Raw);
                return Step::Pass(at + 1);
            };
            state = next;
        }
        self.state = State::LongTag(state, element);
        Step::Pass(page.len())
    }

    /// `-->`, `--!>`, and at the beginning `>` and `->` end a comment.
    fn comment(&mut self, page: &[u8], mut dashes: u8) -> Step {
        for (at, byte) in page.iter().enumerate() {
            dashes = match byte {
                b'-' => dashes.saturating_add(1).min(2),
                b'>' if dashes == 2 => {
                    self.state = State::Text;
                    return Step::Pass(at + 1);
                }
                b'!' if dashes == 2 => 2,
                _ => 0,
            };
        }
        self.state = State::Comment(dashes);
        Step::Pass(page.len())
    }

    fn raw(&mut self, page: &[u8], element: &str) -> Step {
        // `</`, the name, and the byte that ends it.
        let wanted = element.len() + 3;
        for (at, _) in page.iter().enumerate().filter(|(_, byte)| **byte == b'<') {
            let tag = &page[at..page.len().min(at + wanted)];
            let is_begun = tag.iter().zip(b"</".iter().chain(element.as_bytes()));
            if !is_begun
                .into_iter()
                .all(|(one, other)| one.eq_ignore_ascii_case(other))
            {
                continue;
            }
            if tag.len() < wanted {
                // It may be one when more comes.
                return if at == 0 { Step::Wait } else { Step::Pass(at) };
            }
            if tag
                .last()
                .is_some_and(|end| is_space(*end) || matches!(end, b'/' | b'>'))
            {
                self.state = State::Text;
                return Step::Pass(at + wanted - 1);
            }
        }
        Step::Pass(page.len())
    }

    /// Adds the tag that has ended to `out`, its links rewritten.
    fn finish_tag(&mut self, out: &mut Vec<u8>) {
        let bytes = take(&mut self.tag);
        let tag = Tag::parse(&bytes);
        let known = LINKS.iter().find(|(element, _)| *element == tag.name);
        let names = known.map_or(&[][..], |(_, names)| names);
        let mut done = 0;
        for attribute in tag
            .attributes
            .iter()
            .filter(|own| names.contains(&own.name.as_str()))
        {
            let link = std::str::from_utf8(&bytes[attribute.from..attribute.to]);
            let Some(link) = link.ok().and_then(|link| self.links.rewritten(link)) else {
                continue;
            };
            out.extend_from_slice(&bytes[done..attribute.from]);
            out.extend_from_slice(link.as_bytes());
            done = attribute.to;
        }
        out.extend_from_slice(&bytes[done..]);
        self.state = raw_text(&tag.name).map_or(State::Text, State::Raw);
    }
}

/// The element of [`RAW_TEXT`] of this name.
fn raw_text(name: &str) -> Option<&'static str> {
    RAW_TEXT.into_iter().find(|element| *element == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn links() -> Links {
        Links {
            prefix: "/proxy".to_owned(),
            backend: "10.0.0.7:80".to_owned(),
            client: "localhost".to_owned(),
        }
    }

    /// The page after it came in pieces of this size.
    fn rewritten(page: &[u8], piece: usize) -> Vec<u8> {
        let mut rewriter = LinkRewriter::new(links());
        let mut out = Vec::new();
        for piece in page.chunks(piece) {
            rewriter.push(piece, &mut out);
        }
        rewriter.finish(&mut out);
        out
    }

    #[track_caller]
    fn check(page: &str, expected: &str) {
        for piece in [1, 2, 3, 7, page.len().max(1)] {
            let found = rewritten(page.as_bytes(), piece);
            assert_eq!(String::from_utf8_lossy(&found), expected, "in pieces of {piece}");
        }
    }

    #[test]
    fn html_links_are_rewritten() {
        check(r#"<a href="/x">test</a>"#, r#"<a href="/proxy/x">test</a>"#);
        check("<A HREF=/x>y", "<A HREF=/proxy/x>y");
        check(
            "<img alt=a src = '/x.png' usemap='/m'/>",
            "<img alt=a src = '/proxy/x.png' usemap='/proxy/m'/>",
        );
        check(
            r#"<script src="/x.js"></script><link href="/y">"#,
            r#"<script src="/proxy/x.js"></script><link href="/proxy/y">"#,
        );
        check(
            r#"<a title="a > b" href="/x">"#,
            r#"<a title="a > b" href="/proxy/x">"#,
        );
        check("<form action='http://10.0.0.7:80/x'>", "<form action='/proxy/x'>");
        check(
            "<body background=\n\"/x\"><br/><q cite=/x/y>",
            "<body background=\n\"/proxy/x\"><br/><q cite=/proxy/x/y>",
        );
        check("a < b <a href='/x'>", "a < b <a href='/proxy/x'>");
        check(
            "<!doctype html><html><a href='/x'>",
            "<!doctype html><html><a href='/proxy/x'>",
        );
        check(
            "<!-- <a href='/x'> --><a href='/y'>",
            "<!-- <a href='/x'> --><a href='/proxy/y'>",
        );
        check("<!--><a href='/y'>", "<!--><a href='/proxy/y'>");
        check("<!-- a --!><a href='/y'>", "<!-- a --!><a href='/proxy/y'>");
        check(
            "<script>'<a href=\"/x\">'</SCRIPT ><a href='/y'>",
            "<script>'<a href=\"/x\">'</SCRIPT ><a href='/proxy/y'>",
        );
        check(
            "<textarea><a href='/x'></textareas></textarea>",
            "<textarea><a href='/x'></textareas></textarea>",
        );
    }

    #[test]
    fn html_without_such_links_stays_as_it_is() {
        for page in [
            "",
            "no markup",
            "<a href='x'><a href='https://example.com/x'><a name='/x'><p href='/x'>",
            "<a href='/x",
            "<a href=",
            "<",
            "</",
            "<!-",
            "<!-- never closed <a href='/x'>",
            "<style>a { background: url(/x) }",
            "<a = / =\"x\" ==>",
        ] {
            check(page, page);
        }
        let long = format!("<script a='{}'><a href='/x'>", "a".repeat(TAG_BYTES_MAX));
        check_in_pieces(long.as_bytes());
        let long = format!("<a title='{}' href='/x'>", "a".repeat(2 * TAG_BYTES_MAX));
        check_in_pieces(long.as_bytes());
    }

    #[track_caller]
    fn check_in_pieces(page: &[u8]) {
        for piece in [1, 1_000, page.len()] {
            assert_eq!(rewritten(page, piece), page);
        }
    }

    #[test]
    fn html_tag_of_the_greatest_length_is_rewritten_and_a_longer_one_is_not() {
        for (longer, is_rewritten) in [(0, true), (1, false)] {
            let around = "<a title='' href='/x'>".len();
            let title = "a".repeat(TAG_BYTES_MAX - around + longer);
            let page = format!("<a title='{title}' href='/x'>");
            for piece in [1, 1_000, page.len()] {
                let found = rewritten(page.as_bytes(), piece) != page.as_bytes();
                assert_eq!(found, is_rewritten, "{longer} in pieces of {piece}");
            }
        }
    }

    /// Looking for each end anew would take hours.
    #[test]
    fn html_tags_without_an_end_are_read_once() {
        for unit in [
            "<a",
            "<a ",
            "<a b='",
            "<a<!-",
            "<script</s",
            "<!-- <a --",
            "<a b=\"'",
        ] {
            let page = unit.repeat((4 << 20) / unit.len());
            assert!(
                rewritten(page.as_bytes(), page.len()) == page.as_bytes(),
                "{unit}"
            );
            let slow = &page.as_bytes()[..256 << 10];
            assert!(rewritten(slow, 1) == slow, "{unit} byte by byte");
        }
    }

    #[test]
    fn html_of_any_bytes_comes_through_the_same_in_any_pieces() {
        let pages = [
            "<!doctype html><!-- c --><a href='/x' b=\"c\">d</a><script>e</script>"
                .as_bytes()
                .to_vec(),
            b"<img src=/x><textarea>\xff</textarea><?php ?>".to_vec(),
        ];
        machinery_fuzz::fuzz(pages, |page| {
            let piece = page.len().max(1);
            let whole = machinery_fuzz::in_proportion(page, 16, || rewritten(page, piece));
            assert_eq!(
                machinery_fuzz::in_proportion(page, 16, || rewritten(page, 3)),
                whole
            );
        });
    }
}
