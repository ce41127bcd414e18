//! Paths of proxied requests, decoded and encoded again as Go does it, byte for byte.
//!
//! Upstream cuts the decoded path of the request into segments, takes those below `proxy`, cleans them (`path.Join`) and
//! writes them with Go's escapes, whichever escapes the client wrote.

use std::fmt::Write as _;

/// The address of a proxied request in two parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProxiedPath {
    /// The address of the proxy itself, without a slash at its end: `/api/v1/namespaces/n/pods/p/proxy`.
    pub(super) prefix: String,
    /// The path behind it, with its slash; empty where the request has none.
    pub(super) rest: String,
}

impl ProxiedPath {
    /// Cuts the path of an address so that `below` segments are behind the proxy's.
    pub(super) fn cut(path: &str, below: usize) -> Self {
        let decoded = decoded(path);
        let segments: Vec<&[u8]> = trimmed(&decoded).split(|byte| *byte == b'/').collect();
        let (prefix, rest) = segments.split_at(segments.len().saturating_sub(below));
        let rest = joined(rest, decoded.ends_with(b"/"));
        let mut whole = vec![b'/'];
        whole.extend(prefix.join(&b'/'));
        Self {
            prefix: encoded(&whole),
            rest: encoded(&rest),
        }
    }

    /// Puts a decoded path in the place of the requested one. The slash at the end of the address stays.
    pub(super) fn lead_to(&mut self, path: &str) {
        let slash = path.ends_with('/') || self.rest.ends_with('/');
        let segments: Vec<&[u8]> = match path {
            "" => Vec::new(),
            path => path.as_bytes().split(|byte| *byte == b'/').collect(),
        };
        self.rest = encoded(&joined(&segments, slash));
    }

    /// The requested path, as a client writes it.
    pub(super) fn whole(&self) -> String {
        format!("{}{}", self.prefix, self.rest)
    }
}

fn trimmed(path: &[u8]) -> &[u8] {
    let start = path.iter().position(|byte| *byte != b'/').unwrap_or(path.len());
    let end = path
        .iter()
        .rposition(|byte| *byte != b'/')
        .map_or(start, |last| last + 1);
    &path[start..end]
}

/// Segments below the proxy as one path, empty where there are none.
fn joined(segments: &[&[u8]], slash: bool) -> Vec<u8> {
    let mut path = match segments {
        [] => Vec::new(),
        segments => cleaned(segments),
    };
    if slash && !path.ends_with(b"/") {
        path.push(b'/');
    }
    path
}

/// Go's `path.Join("/", …)`: no empty segments, no dots, no way above the root.
fn cleaned(segments: &[&[u8]]) -> Vec<u8> {
    let mut kept: Vec<&[u8]> = Vec::new();
    for segment in segments {
        match *segment {
            b"" | b"." => {}
            b".." => drop(kept.pop()),
            segment => kept.push(segment),
        }
    }
    let mut path = vec![b'/'];
    path.extend(kept.join(&b'/'));
    path
}

/// The bytes that a path stands for; what is no escape stays.
fn decoded(path: &str) -> Vec<u8> {
    let digit = |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16));
    let bytes = path.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let escape = (*byte == b'%').then(|| (digit(bytes.get(at + 1)), digit(bytes.get(at + 2))));
        match escape {
            Some((Some(high), Some(low))) => {
                decoded.push(u8::try_from(high * 16 + low).unwrap_or_default());
                at += 3;
            }
            _ => {
                decoded.push(*byte);
                at += 1;
            }
        }
    }
    decoded
}

/// Go's `url.escape` in the mode `encodePath`.
fn encoded(path: &[u8]) -> String {
    let mut text = String::with_capacity(path.len());
    for byte in path {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => text.push((*byte).into()),
            b'$' | b'&' | b'+' | b',' | b'/' | b':' | b';' | b'=' | b'@' => text.push((*byte).into()),
            // Writing to a string does not fail.
            other => {
                let _ = write!(text, "%{other:02X}");
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(below: usize, path: &str, rest: &str) {
        let cut = ProxiedPath::cut(&format!("/api/v1/nodes/n/proxy{path}"), below);
        assert_eq!(
            (cut.prefix.as_str(), cut.rest.as_str()),
            ("/api/v1/nodes/n/proxy", rest)
        );
    }

    /// Expected values are those of Go 1.26: `path.Join` and `url.URL{Path: …}.EscapedPath()`.
    #[test]
    fn path_is_encoded_as_go_encodes_it() {
        check(0, "", "");
        check(0, "/", "/");
        check(0, "//", "/");
        check(1, "/a", "/a");
        check(1, "/a/", "/a/");
        check(2, "/a%20b/c", "/a%20b/c");
        check(1, "/what%3Fa=b", "/what%3Fa=b");
        check(1, "/a%23b", "/a%23b");
        check(1, "/100%25", "/100%25");
        check(1, "/%C3%A9", "/%C3%A9");
        check(1, "/%ff%FE", "/%FF%FE");
        check(1, "/a%7eb", "/a~b");
        check(1, "/%24%26%2B%2C%3A%3B%3D%40", "/$&+,:;=@");
        check(1, "/(x)!*'[y]", "/%28x%29%21%2A%27%5By%5D");
        check(2, "/a%2Fb", "/a/b");
        check(3, "/a//b", "/a/b");
        check(4, "/a/./../b", "/b");
        check(3, "/../../b", "/b");
        check(1, "/100%", "/100%25");
        check(1, "/%zz", "/%25zz");
    }

    #[test]
    fn path_of_admission_takes_the_place_of_the_requested_one() {
        for (requested, instead, rest) in [
            ("/a", "/b c", "/b%20c"),
            ("/a", "b/../c/", "/c/"),
            ("/a/", "/b", "/b/"),
            ("/a", "", ""),
            ("/a/", "", "/"),
            ("", "/b", "/b"),
        ] {
            let mut path = ProxiedPath::cut(
                &format!("/api/v1/nodes/n/proxy{requested}"),
                usize::from(requested.len() > 1),
            );
            path.lead_to(instead);
            assert_eq!(path.rest, rest, "{requested} {instead}");
        }
    }
}
