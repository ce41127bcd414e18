//! The order of lists: `$setElementOrder`, and where items come that only one side has.

use super::members::{ItemIndex, Members};
use super::{BAD_SET_ORDER, DIRECTIVE, Merge, SET_ORDER, bad, go_type};
use crate::TypeId;
use crate::patch::PatchError;
use crate::tree::{Node, Tag};

/// An item with its place in the order that a patch gives and in that of the list itself.
struct Placed {
    item: Node,
    named: Option<usize>,
    own: Option<usize>,
}

impl Merge<'_> {
    /// `$setElementOrder/x`: merges list `x` and brings it into the stated order; takes both out of the changes.
    pub(super) fn ordered_lists(
        &mut self,
        members: &mut Members,
        changes: &mut Members,
        ty: TypeId,
    ) -> Result<(), PatchError> {
        for at in changes.beginning_with(self.tree, SET_ORDER) {
            if changes.is_gone(at) {
                continue;
            }
            let order = changes.remove(at);
            let name = self.tree.key_of(order)[SET_ORDER.len()..].strip_prefix('/');
            let name = name.ok_or_else(|| bad(BAD_SET_ORDER))?.to_owned();
            self.ordered_list(members, changes, order, &name, ty)?;
        }
        Ok(())
    }

    fn ordered_list(
        &mut self,
        members: &mut Members,
        changes: &mut Members,
        order: Node,
        name: &str,
        ty: TypeId,
    ) -> Result<(), PatchError> {
        let own_at = members.find(self.tree, name);
        let change = changes.take(self.tree, name);
        for node in [Some(order), own_at.map(|at| members.get(at)), change]
            .into_iter()
            .flatten()
        {
            if node.tag() != Tag::List {
                let problem = format!(
                    "expected a []interface {{}}, but received a {}",
                    go_type(node.tag())
                );
                return Err(PatchError::Unmergeable(problem));
            }
        }
        let meta = self.meta(ty, name);
        let order_items = self.tree.children(order).to_vec();
        if let Some(change) = change {
            self.check_order(change, order, meta.merge_key)?;
        }
        let own = own_at.map(|at| self.tree.children(members.get(at)).to_vec());
        let merged = match (own_at, change) {
            (None, None) => return Ok(()),
            (Some(at), None) => members.get(at),
            (None, Some(change)) => self
                .without_directives(change, false)
                .unwrap_or(Node::list((0, 0))),
            (Some(at), Some(change)) => self.list(members.get(at), change, meta, false)?,
        };
        let merged = self.tree.children(merged).to_vec();
        let sorted = self.in_order(merged, &order_items, &own.unwrap_or_default(), meta.merge_key);
        let list = Node::list(self.tree.push_children(&sorted));
        match own_at {
            Some(at) => members.set(at, list),
            None => {
                let key = self.tree.push_text(name);
                members.add(list.in_key(key));
            }
        }
        Ok(())
    }

    /// The items a patch sets must come in the order it states.
    fn check_order(&self, change: Node, order: Node, merge_key: &str) -> Result<(), PatchError> {
        let order_items = self.tree.children(order);
        let mut rest = order_items.iter();
        let special = |item: &Node| self.value_of(*item, DIRECTIVE).is_some();
        let set: Vec<Node> = self
            .tree
            .children(change)
            .iter()
            .copied()
            .filter(|item| !special(item))
            .collect();
        if order_items.is_empty() || set.is_empty() {
            return Ok(());
        }
        for item in set {
            if !self.found_in(&mut rest, item, merge_key)? {
                let (change, order) = (self.shown(change), self.shown(order));
                return Err(PatchError::Unmergeable(format!(
                    "The order in patch list:\n{change}\n doesn't match {SET_ORDER} list:\n{order}\n"
                )));
            }
        }
        Ok(())
    }

    /// Goes on in an order up to the place of an item; both must have keys where there is one.
    fn found_in(
        &self,
        rest: &mut std::slice::Iter<'_, Node>,
        item: Node,
        merge_key: &str,
    ) -> Result<bool, PatchError> {
        for other in rest {
            if !merge_key.is_empty() {
                self.key_value(item, merge_key)?;
                self.key_value(*other, merge_key)?;
            }
            if self.same_item(item, *other, merge_key) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Items named by the patch take its order, the others keep theirs, the two are woven together.
    pub(super) fn in_order(
        &self,
        items: Vec<Node>,
        order: &[Node],
        own_order: &[Node],
        merge_key: &str,
    ) -> Vec<Node> {
        let places = |list: &[Node]| ItemIndex::of(list.iter().map(|item| self.item_key(*item, merge_key)));
        let (in_order, in_own) = (places(order), places(own_order));
        let placed = items.into_iter().map(|item| {
            let key = self.item_key(item, merge_key);
            let at = |places: &ItemIndex| key.as_ref().and_then(|key| places.get(key));
            Placed {
                item,
                named: at(&in_order),
                own: at(&in_own),
            }
        });
        let (mut named, mut others): (Vec<Placed>, Vec<Placed>) =
            placed.partition(|placed| placed.named.is_some());
        named.sort_by_key(|placed| placed.named);
        others.sort_by_key(|placed| placed.own.unwrap_or(usize::MAX));
        woven(named, others)
    }

    fn same_item(&self, a: Node, b: Node, merge_key: &str) -> bool {
        if merge_key.is_empty() {
            return self.same(a, b);
        }
        match (self.value_of(a, merge_key), self.value_of(b, merge_key)) {
            (Some(a), Some(b)) => self.same(a, b),
            _ => false,
        }
    }
}

/// Joins both in their orders; where places in the list itself are known, the earlier one comes first.
fn woven(named: Vec<Placed>, others: Vec<Placed>) -> Vec<Node> {
    let mut merged = Vec::with_capacity(named.len() + others.len());
    let (mut named, mut others) = (named.into_iter().peekable(), others.into_iter().peekable());
    loop {
        let other_first = match (others.peek(), named.peek()) {
            (None, None) => return merged,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (Some(other), Some(named)) => {
                matches!((other.own, named.own), (Some(other), Some(named)) if other < named)
            }
        };
        let next = if other_first { others.next() } else { named.next() };
        merged.extend(next.map(|placed| placed.item));
    }
}
