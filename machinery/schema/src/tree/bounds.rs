//! Bounds of a tree: nesting, size, growth and steps, kept by the tree itself.
//!
//! A write beyond a bound is not carried out. The tree records the first one and keeps it, so that writers need no
//! result of their own: engines and the store ask [`Tree::check_bounds`] before they use what was written. Since no
//! tree nests deeper than [`MAX_DEPTH`], a function that recurses over a tree has a bound on its stack.

use super::{Node, Tag, Tree};
use crate::MAX_DEPTH;
use crate::json::MAX_INPUT;

/// Nodes of one tree, replaced ones included (16 bytes each).
pub const MAX_NODES: usize = 8 << 20;
/// Bytes of text of one tree: an input, what becomes of its escapes, and what is written later.
pub const MAX_TEXT: usize = 3 * MAX_INPUT;

/// The bound that a write would have exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Exceeded {
    /// More than [`MAX_DEPTH`] lists and maps within each other, in the words of Go's decoder.
    #[error("exceeded max depth")]
    Depth,
    #[error("the object would take more memory than is allowed for one request")]
    Size,
    #[error("the change takes more steps than are allowed for one request")]
    Steps,
}

/// Room that a tree has left, and the first bound that it would have exceeded.
#[derive(Debug, Clone)]
pub(crate) struct Bounds {
    max_nodes: usize,
    max_text: usize,
    /// Steps left: nodes that are copied, moved aside or looked at.
    steps: u64,
    exceeded: Option<Exceeded>,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            max_nodes: MAX_NODES,
            max_text: MAX_TEXT,
            steps: u64::MAX,
            exceeded: None,
        }
    }
}

/// Most that one change may add to a tree.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Growth {
    pub(crate) nodes: usize,
    pub(crate) text: usize,
    pub(crate) steps: u64,
}

impl Tree {
    /// # Errors
    /// The first bound that a write would have exceeded; what the tree holds then is not what was requested.
    pub fn check_bounds(&self) -> Result<(), Exceeded> {
        self.bounds.exceeded.map_or(Ok(()), Err)
    }

    /// Limits what is added from now on.
    pub(crate) fn limit(&mut self, growth: Growth) {
        let bounds = &mut self.bounds;
        bounds.max_nodes = self.nodes.len().saturating_add(growth.nodes).min(MAX_NODES);
        bounds.max_text = self.text.len().saturating_add(growth.text).min(MAX_TEXT);
        bounds.steps = growth.steps;
    }

    /// Notes that a bound would be exceeded.
    #[cold]
    pub(crate) fn exceed(&mut self, bound: Exceeded) {
        self.bounds.exceeded.get_or_insert(bound);
    }

    /// Reports whether a list or map may stand inside of `depth` others.
    pub(crate) fn may_nest(&mut self, depth: usize) -> bool {
        if depth >= MAX_DEPTH {
            self.exceed(Exceeded::Depth);
        }
        depth < MAX_DEPTH
    }

    /// Reports whether so many more nodes fit.
    pub(crate) fn fits_nodes(&mut self, more: usize) -> bool {
        let fits = self.nodes.len() + more <= self.bounds.max_nodes;
        if !fits {
            self.exceed(Exceeded::Size);
        }
        fits
    }

    /// Reports whether so many more bytes of text fit.
    pub(crate) fn fits_text(&mut self, more: usize) -> bool {
        let fits = self.text.len() + more <= self.bounds.max_text;
        if !fits {
            self.exceed(Exceeded::Size);
        }
        fits
    }

    #[cfg(test)]
    pub(crate) fn steps_left(&self) -> u64 {
        self.bounds.steps
    }

    /// Counts steps; false once there are none left.
    pub(crate) fn charge(&mut self, steps: usize) -> bool {
        match self.bounds.steps.checked_sub(steps as u64) {
            Some(left) => self.bounds.steps = left,
            None => {
                self.bounds.steps = 0;
                self.exceed(Exceeded::Steps);
            }
        }
        self.bounds.exceeded != Some(Exceeded::Steps)
    }

    /// Reports whether a value of this tree may stand inside of `depth` lists and maps; each node looked at is a step.
    pub(crate) fn may_stand(&mut self, value: Node, depth: usize) -> bool {
        let mut open = vec![(value, depth)];
        while let Some((node, depth)) = open.pop() {
            if !matches!(node.tag(), Tag::List | Tag::Map) {
                continue;
            }
            if !self.may_nest(depth) || !self.charge(node.range().len()) {
                return false;
            }
            open.extend(self.children(node).iter().map(|child| (*child, depth + 1)));
        }
        true
    }

    /// Bytes of nodes and text, replaced ones included.
    pub fn arena_bytes(&self) -> usize {
        self.nodes.len() * size_of::<Node>() + self.text.len()
    }

    /// Number of lists and maps that are within each other, opaque JSON included.
    pub fn depth(&self) -> usize {
        let mut deepest = 0;
        let mut open = vec![(self.root, 0)];
        while let Some((node, around)) = open.pop() {
            match node.tag() {
                Tag::List | Tag::Map => {
                    deepest = deepest.max(around + 1);
                    open.extend(self.children(node).iter().map(|child| (*child, around + 1)));
                }
                Tag::Raw => deepest = deepest.max(around + nesting(self.text_of(node))),
                _ => {}
            }
        }
        deepest
    }
}

/// Reports whether a JSON text nests no deeper than so many lists and maps.
pub(crate) fn nests_within(json: &str, depth: usize) -> bool {
    // Nearly every text has fewer that begin than may be within each other, and counting them is vector code.
    opening(json.as_bytes()) <= depth || nesting(json) <= depth
}

/// Number of lists and maps that begin, were there no strings.
fn opening(json: &[u8]) -> usize {
    // So many fit into a count of one byte, and are whole vectors.
    let counted = json.chunks(192).map(|chunk| {
        let opening = |byte: &u8| u8::from(matches!(byte, b'{' | b'['));
        chunk.iter().map(opening).sum::<u8>()
    });
    counted.map(usize::from).sum()
}

/// Number of lists and maps that are within each other in a JSON text.
pub(crate) fn nesting(json: &str) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    let mut rest = json.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        match byte {
            b'"' => rest = behind_string(rest),
            b'{' | b'[' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// Bytes after the string whose opening quote stands before these bytes.
fn behind_string(mut rest: &[u8]) -> &[u8] {
    while let Some(at) = rest.iter().position(|byte| matches!(byte, b'"' | b'\\')) {
        let taken = if rest[at] == b'"' { 1 } else { 2 };
        let end = (at + taken).min(rest.len());
        rest = &rest[end..];
        if taken == 1 {
            return rest;
        }
    }
    &[]
}

#[cfg(test)]
mod tests {
    use super::{nests_within, opening};

    #[test]
    fn nesting_of_long_texts_is_counted() {
        for many in [0, 1, 191, 192, 193, 256, 257, 5_000] {
            let deep = format!("{}{}", "[".repeat(many), "]".repeat(many));
            assert_eq!(opening(deep.as_bytes()), many);
            assert!(nests_within(&deep, many), "{many}");
            assert!(many == 0 || !nests_within(&deep, many - 1), "{many}");
            let flat = format!("[{}{{}}]", "{},".repeat(many));
            assert_eq!(opening(flat.as_bytes()), many + 2);
            assert!(nests_within(&flat, 2), "{many}");
        }
    }
}
