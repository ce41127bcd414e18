//! A path within an object, rendered only on demand.

use machinery_meta::FieldPath;

/// A step down from a parent, or the root.
#[derive(Debug, Clone, Copy)]
pub struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    step: Step<'a>,
}

#[derive(Debug, Clone, Copy)]
enum Step<'a> {
    Root,
    Field(&'a str),
    Exactly(&'a str),
    Index(usize),
    Key(&'a str),
}

impl<'a> Path<'a> {
    /// The object itself.
    pub const ROOT: Path<'static> = Path {
        parent: None,
        step: Step::Root,
    };

    /// A field of the object itself.
    pub fn of(name: &'a str) -> Self {
        Self {
            parent: None,
            step: Step::Field(name),
        }
    }

    /// A field of this one: `a` → `a.name`.
    pub fn child<'b>(&'b self, name: &'b str) -> Path<'b> {
        Path {
            parent: Some(self),
            step: Step::Field(name),
        }
    }

    /// A field of this one whose name may have dots.
    pub fn exactly<'b>(&'b self, name: &'b str) -> Path<'b> {
        Path {
            parent: Some(self),
            step: Step::Exactly(name),
        }
    }

    /// An item of this list: `a` → `a[3]`.
    pub fn index<'b>(&'b self, index: usize) -> Path<'b> {
        Path {
            parent: Some(self),
            step: Step::Index(index),
        }
    }

    /// An entry of this map: `a` → `a[key]`.
    pub fn key<'b>(&'b self, key: &'b str) -> Path<'b> {
        Path {
            parent: Some(self),
            step: Step::Key(key),
        }
    }

    /// The path as messages show it.
    pub fn render(&self) -> FieldPath {
        let parent = self.parent.map_or_else(FieldPath::root, Path::render);
        match self.step {
            Step::Root => parent,
            Step::Field(name) => name.split('.').fold(parent, |path, part| path.child(part)),
            Step::Exactly(name) => parent.child(name),
            Step::Index(index) => parent.index(index),
            Step::Key(key) => parent.key(key),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renders_as_upstream_prints() {
        let spec = Path::of("spec");
        let containers = spec.child("containers");
        let first = containers.index(0);
        let limits = first.child("resources.limits");
        assert_eq!(
            limits.key("cpu").render().as_str(),
            "spec.containers[0].resources.limits[cpu]"
        );
        assert_eq!(Path::ROOT.child("a").render().as_str(), "a");
    }
}
