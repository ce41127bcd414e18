//! Paths of values that a walk comes by: each knows its own part and what it is in, and is written where a problem is found.
//!
//! A text for each value costs the names above it once for each: ten thousand items below a name of a mebibyte took ten
//! gigabytes.

use crate::field::FieldPath;
use std::fmt;

/// Path of a value; it borrows from those that it is in.
#[derive(Debug, Clone, Copy, Default)]
pub struct WalkedPath<'p> {
    /// `None` for the whole object.
    own: Option<(&'p WalkedPath<'p>, Part<'p>)>,
}

#[derive(Debug, Clone, Copy)]
enum Part<'p> {
    Child(&'p str),
    Key(&'p str),
    Index(usize),
}

impl<'p> WalkedPath<'p> {
    /// The object itself.
    pub const ROOT: WalkedPath<'static> = WalkedPath { own: None };

    /// A field of the object itself.
    pub fn of(name: &'p str) -> Self {
        const ROOT: &WalkedPath<'static> = &WalkedPath::ROOT;
        ROOT.child(name)
    }

    /// See [`FieldPath::child`]; the name may be several, joined by dots.
    #[must_use]
    pub fn child(&'p self, name: &'p str) -> Self {
        self.part(Part::Child(name))
    }

    /// See [`FieldPath::key`].
    #[must_use]
    pub fn key(&'p self, key: &'p str) -> Self {
        self.part(Part::Key(key))
    }

    /// See [`FieldPath::index`].
    #[must_use]
    pub fn index(&'p self, index: usize) -> Self {
        self.part(Part::Index(index))
    }

    fn part(&'p self, part: Part<'p>) -> Self {
        Self {
            own: Some((self, part)),
        }
    }

    /// Reports whether it is that of the whole object.
    pub fn is_root(&self) -> bool {
        self.own.is_none()
    }

    /// Writes it.
    pub fn to_path(&self) -> FieldPath {
        match self.is_root() {
            true => FieldPath::root(),
            false => FieldPath::new(&self.to_string()),
        }
    }
}

/// Nothing for the whole object.
impl fmt::Display for WalkedPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        let mut at = self;
        while let Some((within, part)) = &at.own {
            parts.push(*part);
            at = within;
        }
        let mut is_first = true;
        for part in parts.into_iter().rev() {
            match part {
                Part::Child(name) if is_first => f.write_str(name)?,
                Part::Child(name) => write!(f, ".{name}")?,
                Part::Key(key) => write!(f, "[{key}]")?,
                Part::Index(index) => write!(f, "[{index}]")?,
            }
            is_first = false;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn walked_path_is_written_as_a_path_of_fields() {
        let root = WalkedPath::ROOT;
        assert_eq!(
            (root.to_string(), root.to_path()),
            (String::new(), FieldPath::root())
        );
        let spec = WalkedPath::of("spec");
        assert_eq!(spec.to_path(), root.child("spec").to_path());
        let list = spec.child("list");
        let item = list.index(3);
        let entry = item.key("a/b");
        let field = entry.child("name");
        let written = FieldPath::new("spec")
            .child("list")
            .index(3)
            .key("a/b")
            .child("name");
        assert_eq!(field.to_path(), written);
        assert_eq!(field.to_string(), "spec.list[3][a/b].name");
        assert_eq!(root.index(0).to_path(), FieldPath::root().index(0));
        let limits = list.child("resources.limits");
        assert_eq!(limits.key("cpu").to_string(), "spec.list.resources.limits[cpu]");
        // An empty name is a name.
        assert_eq!(root.child("").child("a").to_string(), ".a");
    }
}
