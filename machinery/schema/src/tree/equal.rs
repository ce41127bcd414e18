//! Equality: the normal form has one shape per value, so it is a walk in step.

use super::{Node, Ref, Tag, Tree};

impl PartialEq for Tree {
    fn eq(&self, other: &Self) -> bool {
        self.root() == other.root()
    }
}

impl PartialEq for Ref<'_> {
    fn eq(&self, other: &Self) -> bool {
        if self.has_type_of(*other) {
            return same((self.tree, self.node), (other.tree, other.node));
        }
        match (self.node.tag(), other.node.tag()) {
            (Tag::List, Tag::List) | (Tag::Map, Tag::Map) => self.same_children(*other),
            _ => same((self.tree, self.node), (other.tree, other.node)),
        }
    }
}

impl Ref<'_> {
    /// Reports whether fields of both are numbered alike.
    pub(crate) fn has_type_of(self, other: Ref<'_>) -> bool {
        std::ptr::eq(self.schema(), other.schema()) && self.ty == other.ty
    }

    fn same_children(self, other: Ref<'_>) -> bool {
        let (own, theirs) = (self.tree.children(self.node), other.tree.children(other.node));
        own.len() == theirs.len()
            && own.iter().zip(theirs).all(|(a, b)| {
                let same_name = self.node.tag() == Tag::List
                    || self.tree.name_of(self.ty, *a) == other.tree.name_of(other.ty, *b);
                same_name && self.child(*a) == other.child(*b)
            })
    }
}

/// Compares values of one type; the types below are not compared: children at the same places have the same ones.
fn same((tree, one): (&Tree, Node), (other_tree, other): (&Tree, Node)) -> bool {
    let tag = one.tag();
    if tag != other.tag() {
        return same_number(one, other);
    }
    match tag {
        Tag::Null => true,
        Tag::Bool => one.as_bool() == other.as_bool(),
        Tag::Int => one.as_int() == other.as_int(),
        Tag::Float => one.as_float() == other.as_float(),
        Tag::Str | Tag::Raw => same_text((tree, one.span()), (other_tree, other.span())),
        Tag::List => {
            let (own, theirs) = (&tree.nodes[one.range()], &other_tree.nodes[other.range()]);
            let mut pairs = own.iter().zip(theirs);
            own.len() == theirs.len() && pairs.all(|(a, b)| same((tree, *a), (other_tree, *b)))
        }
        Tag::Map => {
            let (own, theirs) = (&tree.nodes[one.range()], &other_tree.nodes[other.range()]);
            let mut pairs = own.iter().zip(theirs);
            own.len() == theirs.len()
                && pairs.all(|(a, b)| {
                    // A label is a position, or the length of a key.
                    a.label() == b.label()
                        && (!a.is_named() || same_text((tree, a.key_slice()), (other_tree, b.key_slice())))
                        && same((tree, *a), (other_tree, *b))
                })
        }
    }
}

/// Numbers are equal by their value: JSON has one kind, and `1` is what Go writes of a float (structured-merge-diff compares
/// them so too).
#[expect(
    clippy::cast_precision_loss,
    reason = "as upstream: an integer beside a float is read as one"
)]
fn same_number(one: Node, other: Node) -> bool {
    match (one.tag(), other.tag()) {
        (Tag::Int, Tag::Float) => one.as_int() as f64 == other.as_float(),
        (Tag::Float, Tag::Int) => one.as_float() == other.as_int() as f64,
        _ => false,
    }
}

/// Texts by where they start and how long they are.
fn same_text((tree, own): (&Tree, (u32, u32)), (other_tree, other): (&Tree, (u32, u32))) -> bool {
    bytes(tree, own) == bytes(other_tree, other)
}

/// Bytes of a text, without the check of a `str` that it begins and ends between two characters.
fn bytes(tree: &Tree, (start, len): (u32, u32)) -> &[u8] {
    let start = start as usize;
    &tree.text.as_bytes()[start..start + len as usize]
}

#[cfg(test)]
mod tests {
    use crate::testing::{pod_schema, pod_type};
    use crate::{Strictness, Tree, decode_json};

    #[test]
    fn tree_equality_ignores_member_order() {
        let one = Tree::from_json(r#"{"a":1,"b":[{"x":null,"y":2.5}]}"#).unwrap();
        let two = Tree::from_json(r#"{"b":[{"y":2.5,"x":null}],"a":1}"#).unwrap();
        assert!(one == two);
        let numbers = [r#"{"a":[100]}"#, r#"{"a":[100.0]}"#, r#"{"a":[100.5]}"#];
        let [whole, float, other] = numbers.map(|json| Tree::from_json(json).unwrap());
        assert!(whole == float, "one value, written in two ways");
        assert!(float == whole && float != other);
        assert!(whole != other);
        let three = Tree::from_json(r#"{"b":[{"y":2.5}],"a":1}"#).unwrap();
        assert!(one != three);
    }

    #[test]
    fn tree_equality_sees_names() {
        let schema = pod_schema();
        let pod = |json: &str| {
            let json = format!(r#"{{"metadata":{json}}}"#);
            let decoded = decode_json(&schema, pod_type(&schema), json.as_bytes(), Strictness::Ignore);
            decoded.unwrap().tree
        };
        let all = [
            r#"{"labels":{"a":"b"}}"#,
            r#"{"annotations":{"a":"b"}}"#,
            r#"{"annotations":{"a":"c"}}"#,
            "{}",
        ];
        for one in all {
            for other in all {
                assert_eq!(pod(one) == pod(other), one == other, "{one} {other}");
            }
        }
        let all = [
            r#"{"a":1}"#,
            r#"{"b":1}"#,
            r#"{"ab":1}"#,
            r#"{"a":"1"}"#,
            "[1]",
            "[1,1]",
        ];
        for one in all {
            for other in all {
                let [own, theirs] = [one, other].map(|json| Tree::from_json(json).unwrap());
                assert_eq!(own == theirs, one == other, "{one} {other}");
            }
        }
    }
}
