//! Defaults that are set in code: compiled once into a tree of positions, walked once per object.
//!
//! A line `a.b[].c=value` sets `c` to a value in every struct the path leads to, unless it has one; null and empty text
//! count as none. Values are numbers, `true`, `false`, `{}`, a text in quotes and a list of one text. Lists and members
//! on the way are entered, not made, except by an earlier line.

use crate::table::{Schema, TypeId};
use crate::tree::{Node, Tag, Tree, find_field};
use smallvec::SmallVec;

/// The lines of one type.
#[derive(Debug, Clone, Default)]
pub struct Additions(Level);

/// Additions to one struct.
#[derive(Debug, Clone, Default)]
struct Level {
    /// By position, so that they are met in the order of the members.
    sets: Vec<SetMember>,
    below: Vec<EnteredMember>,
}

/// A member that is set.
#[derive(Debug, Clone)]
struct SetMember {
    position: usize,
    /// Go has a pointer: empty text is a value.
    is_pointer: bool,
    value: Addition,
}

/// A member that is entered.
#[derive(Debug, Clone)]
struct EnteredMember {
    position: usize,
    /// The member is a list, and each of its items is meant.
    each: bool,
    level: Level,
}

#[derive(Debug, Clone)]
enum Addition {
    EmptyMap,
    Bool(bool),
    Int(i64),
    Text(Box<str>),
    OneText(Box<str>),
}

/// A line that says nothing of the type it is for, or what another line says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{line:?} leads nowhere, or where another line does")]
pub struct AdditionError {
    line: String,
}

impl Additions {
    /// Compiles lines for a type.
    ///
    /// # Errors
    /// A path that the type does not have, or a value that cannot be set.
    pub fn compile<'a>(
        schema: &Schema,
        ty: TypeId,
        lines: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, AdditionError> {
        let mut top = Level::default();
        for line in lines {
            let added = line
                .split_once('=')
                .and_then(|(path, value)| top.add(schema, ty, path, Addition::parse(value)?));
            added.ok_or_else(|| AdditionError {
                line: line.to_owned(),
            })?;
        }
        Ok(Self(top))
    }

    /// Nothing would be set.
    pub fn is_empty(&self) -> bool {
        self.0.sets.is_empty() && self.0.below.is_empty()
    }

    /// Sets what is missing.
    pub fn apply(&self, tree: &mut Tree) {
        tree.root = self.0.apply(tree, tree.root);
    }
}

impl Level {
    fn add(&mut self, schema: &Schema, ty: TypeId, path: &str, value: Addition) -> Option<()> {
        let Some((first, rest)) = path.split_once('.') else {
            let (position, field) = schema.field(ty, path)?;
            let at = self.sets.partition_point(|own| own.position < position);
            let twice = self.sets.get(at).is_some_and(|own| own.position == position);
            let is_pointer = field.pointer;
            let set = SetMember {
                position,
                is_pointer,
                value,
            };
            return (!twice).then(|| self.sets.insert(at, set));
        };
        let (name, each) = first
            .strip_suffix("[]")
            .map_or((first, false), |name| (name, true));
        let (position, field) = schema.field(ty, name)?;
        let inner = if each { schema.ty(field.ty).item } else { field.ty };
        let known = self
            .below
            .iter()
            .position(|below| below.position == position && below.each == each);
        let at = known.unwrap_or_else(|| {
            self.below.push(EnteredMember {
                position,
                each,
                level: Self::default(),
            });
            self.below.len() - 1
        });
        self.below[at].level.add(schema, inner, rest, value)
    }

    /// The struct with what it lacked, in the same place.
    fn apply(&self, tree: &mut Tree, node: Node) -> Node {
        if node.tag() != Tag::Map {
            return node;
        }
        let node = self.set(tree, node);
        for below in &self.below {
            let Some(found) = find_field(tree.children(node), below.position) else {
                continue;
            };
            let at = node.range().start + found;
            if !below.each {
                tree.nodes[at] = below.level.apply(tree, tree.nodes[at]);
            } else if tree.nodes[at].tag() == Tag::List {
                for item in tree.nodes[at].range() {
                    tree.nodes[item] = below.level.apply(tree, tree.nodes[item]);
                }
            }
        }
        node
    }

    fn set(&self, tree: &mut Tree, node: Node) -> Node {
        let mut missing: SmallVec<[Node; 8]> = SmallVec::new();
        for set in &self.sets {
            let (position, value) = (set.position, &set.value);
            let Some(found) = find_field(tree.children(node), position) else {
                missing.push(value.make(tree).in_field(position));
                continue;
            };
            let at = node.range().start + found;
            let own = tree.nodes[at];
            let is_empty = !set.is_pointer && own.tag() == Tag::Str && own.span().1 == 0;
            if own.is_null() || is_empty {
                tree.nodes[at] = value.make(tree).in_field(position);
            }
        }
        if missing.is_empty() {
            node
        } else {
            tree.with_fields(node, &missing)
        }
    }
}

impl Addition {
    fn parse(value: &str) -> Option<Self> {
        let quoted = |begin: &str, end: &str| value.strip_prefix(begin)?.strip_suffix(end);
        Some(match value {
            "{}" => Self::EmptyMap,
            "true" | "false" => Self::Bool(value == "true"),
            _ => {
                if let Some(text) = quoted("[\"", "\"]") {
                    Self::OneText(text.into())
                } else if let Some(text) = quoted("\"", "\"") {
                    Self::Text(text.into())
                } else {
                    Self::Int(value.parse().ok()?)
                }
            }
        })
    }

    fn make(&self, tree: &mut Tree) -> Node {
        match self {
            Self::EmptyMap => Node::map((0, 0)),
            Self::Bool(value) => Node::bool(*value),
            Self::Int(value) => Node::int(*value),
            Self::Text(text) => Node::str(tree.push_text(text)),
            Self::OneText(text) => {
                let item = Node::str(tree.push_text(text));
                Node::list(tree.push_children(&[item]))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Additions;
    use crate::testing::{pod_schema, pod_type};
    use crate::{Strictness, decode_json};

    #[track_caller]
    fn check(lines: &[&str], input: &str, path: &[&str], expected: &str) {
        let schema = pod_schema();
        let additions = Additions::compile(&schema, pod_type(&schema), lines.iter().copied()).unwrap();
        let mut tree = decode_json(&schema, pod_type(&schema), input.as_bytes(), Strictness::Ignore)
            .unwrap()
            .tree;
        additions.apply(&mut tree);
        let once = tree.root().to_json();
        assert_eq!(tree.at(path).unwrap().to_json(), expected);
        additions.apply(&mut tree);
        assert_eq!(tree.root().to_json(), once, "again changes nothing");
    }

    #[test]
    fn additions_missing_member_is_set_at_any_path() {
        let lines = [
            "spec.restartPolicy=\"Always\"",
            "spec.containers[].image=\"none\"",
            "spec.containers[].ports[].protocol=\"TCP\"",
        ];
        let input = r#"{"spec":{"containers":[{"name":"a","ports":[{"containerPort":1},{"protocol":"UDP"}]},{"name":"b","image":"i"}]}}"#;
        check(
            &lines,
            input,
            &["spec"],
            r#"{"containers":[{"name":"a","image":"none","ports":[{"containerPort":1,"protocol":"TCP"},{"containerPort":0,"protocol":"UDP"}],"resources":{}},{"name":"b","image":"i","resources":{}}],"restartPolicy":"Always"}"#,
        );
        check(
            &lines,
            r#"{"metadata":{"name":"a"}}"#,
            &["metadata", "name"],
            r#""a""#,
        );
    }

    #[test]
    fn additions_unresolved_line_is_refused() {
        let schema = pod_schema();
        for line in [
            "spec.nothing=1",
            "spec.restartPolicy",
            "nothing.at.all=\"x\"",
            "spec.restartPolicy=x",
        ] {
            assert!(
                Additions::compile(&schema, pod_type(&schema), [line]).is_err(),
                "{line}"
            );
        }
    }
}
