//! Equality: the normal form has one shape per value, so it is a walk in step.

use super::{Ref, Tag, Tree};

impl PartialEq for Tree {
    fn eq(&self, other: &Self) -> bool {
        self.root() == other.root()
    }
}

impl PartialEq for Ref<'_> {
    fn eq(&self, other: &Self) -> bool {
        if self.node.tag() != other.node.tag() {
            return false;
        }
        match self.node.tag() {
            Tag::Null => true,
            Tag::Bool => self.node.as_bool() == other.node.as_bool(),
            Tag::Int => self.node.as_int() == other.node.as_int(),
            Tag::Float => self.node.as_float() == other.node.as_float(),
            Tag::Str | Tag::Raw => self.tree.text_of(self.node) == other.tree.text_of(other.node),
            Tag::List | Tag::Map => self.same_children(*other),
        }
    }
}

impl Ref<'_> {
    fn same_children(self, other: Ref<'_>) -> bool {
        let (own, theirs) = (self.tree.children(self.node), other.tree.children(other.node));
        let same_schema = std::ptr::eq(self.schema(), other.schema()) && self.ty == other.ty;
        own.len() == theirs.len()
            && own.iter().zip(theirs).all(|(a, b)| {
                let same_name = self.node.tag() == Tag::List
                    || (same_schema && !a.is_named() && !b.is_named() && a.position() == b.position())
                    || self.tree.name_of(self.ty, *a) == other.tree.name_of(other.ty, *b);
                same_name && self.child(*a) == other.child(*b)
            })
    }
}

#[cfg(test)]
mod tests {
    use crate::Tree;

    #[test]
    fn tree_equality_ignores_member_order() {
        let one = Tree::from_json(r#"{"a":1,"b":[{"x":null,"y":2.5}]}"#).unwrap();
        let two = Tree::from_json(r#"{"b":[{"y":2.5,"x":null}],"a":1}"#).unwrap();
        assert!(one == two);
        let three = Tree::from_json(r#"{"b":[{"y":2.5}],"a":1}"#).unwrap();
        assert!(one != three);
    }
}
