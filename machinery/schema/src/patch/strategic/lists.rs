//! Lists: merged by key or as sets, with the directives of their items.

use super::members::{ItemIndex, ItemKey};
use super::{DIRECTIVE, Merge, Meta, unknown_directive};
use crate::patch::PatchError;
use crate::tree::{Node, Tag};
use std::collections::HashSet;

impl Merge<'_> {
    pub(super) fn list(
        &mut self,
        original: Node,
        patch: Node,
        meta: Meta<'_>,
        delete: bool,
    ) -> Result<Node, PatchError> {
        if !meta.merge && !delete {
            return Ok(patch);
        }
        let (own, theirs) = (
            self.tree.children(original).to_vec(),
            self.tree.children(patch).to_vec(),
        );
        if own.is_empty() && theirs.is_empty() {
            return Ok(original);
        }
        let merged = self.items(own, theirs, meta, delete)?;
        Ok(Node::list(self.tree.push_children(&merged)))
    }

    fn items(
        &mut self,
        own: Vec<Node>,
        theirs: Vec<Node>,
        meta: Meta<'_>,
        delete: bool,
    ) -> Result<Vec<Node>, PatchError> {
        self.tree.charge(own.len() + theirs.len());
        if self.element_tag(&own, &theirs)? != Tag::Map {
            return Ok(self.plain_items(own, theirs, delete));
        }
        if meta.merge_key.is_empty() {
            let name = self.schema.text(self.schema.ty(meta.ty).go_name);
            return Err(PatchError::Unmergeable(format!(
                "cannot merge lists without merge key for {name}"
            )));
        }
        let (own, theirs) = self.special_items(own, theirs, meta.merge_key)?;
        let mut merged = own.clone();
        let mut places = ItemIndex::of(own.iter().map(|item| self.item_key(*item, meta.merge_key)));
        for item in &theirs {
            let key = ItemKey::of(self.tree, self.key_value(*item, meta.merge_key)?);
            match places.get(&key) {
                Some(found) => merged[found] = self.map(merged[found], *item, meta.ty)?,
                None => {
                    places.put(key, merged.len());
                    merged.push(*item);
                }
            }
        }
        Ok(self.in_order(merged, &theirs, &own, meta.merge_key))
    }

    /// Lists of scalars are sets.
    fn plain_items(&self, own: Vec<Node>, theirs: Vec<Node>, delete: bool) -> Vec<Node> {
        let key = |item: Node| ItemKey::of(self.tree, item);
        if delete {
            let gone: HashSet<ItemKey> = theirs.into_iter().map(key).collect();
            return own
                .into_iter()
                .filter(|item| !gone.contains(&key(*item)))
                .collect();
        }
        let mut known = HashSet::new();
        let both = own.iter().chain(&theirs).copied();
        let merged = both.filter(|item| known.insert(key(*item))).collect();
        self.in_order(merged, &theirs, &own, "")
    }

    /// Carries out `$patch` items: deletions in the list, or the replacement of all of it.
    fn special_items(
        &mut self,
        mut own: Vec<Node>,
        theirs: Vec<Node>,
        merge_key: &str,
    ) -> Result<(Vec<Node>, Vec<Node>), PatchError> {
        let mut plain = Vec::with_capacity(theirs.len());
        let mut replace = false;
        let mut gone = HashSet::new();
        for item in theirs {
            let Some(directive) = self.value_of(item, DIRECTIVE) else {
                plain.push(item);
                continue;
            };
            match self.tree.text_of(directive) {
                "delete" => {
                    let key = self.key_value(item, merge_key)?;
                    gone.insert(ItemKey::of(self.tree, key));
                }
                "replace" => replace = true,
                "merge" => {
                    let problem = "merging lists cannot yet be specified in the patch";
                    return Err(PatchError::Unmergeable(problem.to_owned()));
                }
                other => return Err(unknown_directive(other, self.shown(item))),
            }
        }
        if !gone.is_empty() {
            let key = |item: &Node| self.item_key(*item, merge_key);
            own.retain(|item| key(item).is_none_or(|key| !gone.contains(&key)));
        }
        Ok(if replace {
            (plain, Vec::new())
        } else {
            (own, plain)
        })
    }

    /// All items are of one kind, and no lists.
    fn element_tag(&self, own: &[Node], theirs: &[Node]) -> Result<Tag, PatchError> {
        let mut items = own.iter().chain(theirs);
        let first = items.next().map_or(Tag::Null, |item| item.tag());
        if first == Tag::List {
            let problem = "lists of lists are not supported";
            return Err(PatchError::DoesNotApply(problem.to_owned()));
        }
        if items.all(|item| item.tag() == first) {
            return Ok(first);
        }
        let list = |items: &[Node]| -> String {
            let shown: Vec<String> = items.iter().map(|item| self.shown(*item)).collect();
            format!("[{}]", shown.join(" "))
        };
        Err(PatchError::Unmergeable(format!(
            "list element types are not identical: [{} {}]",
            list(own),
            list(theirs)
        )))
    }
}
