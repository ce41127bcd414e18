//! Lists that are sets or maps: nothing twice, and which old item an item is compared with.

use super::Constraints;
use super::bounds::Validation;
use super::validate::shown;
use crate::leaf::go_quote;
use crate::table::{ListType, Shape};
use crate::tree::{Kind, Ref};
use machinery_meta::FieldError;
use machinery_meta::field::Shown;
use machinery_meta::walked_path::WalkedPath;
use std::collections::HashMap;

impl Validation {
    /// Sets and maps written as lists: no item, no key twice.
    pub(super) fn unique(&mut self, value: Ref<'_>, path: &WalkedPath<'_>) {
        if !self.step(0) {
            return;
        }
        match value.kind() {
            Kind::Map => {
                let free = value.schema().ty(value.ty()).shape == Shape::Map;
                for (name, member) in value.entries() {
                    if self.over {
                        break;
                    }
                    self.unique(member, &if free { path.key(name) } else { path.child(name) });
                }
            }
            Kind::List => {
                match value.schema().constraints(value.ty()) {
                    Some(own) if own.list_type == ListType::Set => self.unique_items(value, path),
                    Some(own) if own.list_type == ListType::Map => {
                        self.unique_keys(value, &own.list_map_keys, path)
                    }
                    _ => {}
                }
                for (index, item) in value.items().enumerate() {
                    if self.over {
                        break;
                    }
                    self.unique(item, &path.index(index));
                }
            }
            _ => {}
        }
    }

    fn unique_items(&mut self, list: Ref<'_>, path: &WalkedPath<'_>) {
        // A whole number and one with a fraction are two, though they were the same.
        let text = |item: Ref<'_>| match item.kind() {
            Kind::Float => format!("float {}", item.to_json()),
            _ => item.to_json(),
        };
        let texts: Vec<String> = list.items().map(text).collect();
        for index in second_times(&texts) {
            if let Some(item) = list.item(index) {
                self.push(FieldError::duplicate(&path.index(index).to_path(), shown(item)));
            }
        }
    }

    fn unique_keys(&mut self, list: Ref<'_>, keys: &[String], path: &WalkedPath<'_>) {
        if let Some(index) = list
            .items()
            .position(|item| !matches!(item.kind(), Kind::Map | Kind::Null))
        {
            if let Some(item) = list.item(index) {
                let problem = "must be an object for an array of list-type map";
                self.push(FieldError::invalid(
                    &path.index(index).to_path(),
                    shown(item),
                    problem,
                ));
            }
            return;
        }
        let key_of = |item: Ref<'_>| {
            let present = keys.iter().filter_map(|key| item.get(key).map(|own| (key, own)));
            let mut members: Vec<String> = present
                .map(|(key, own)| format!("{}:{}", go_quote(key), own.to_json()))
                .collect();
            members.sort_unstable();
            format!("{{{}}}", members.join(","))
        };
        let texts: Vec<String> = list.items().map(key_of).collect();
        for index in second_times(&texts) {
            self.push(FieldError::duplicate(
                &path.index(index).to_path(),
                Shown(texts[index].clone()),
            ));
        }
    }
}

/// The items of an old list by their keys: an item is compared with the one that has its keys.
pub(super) struct OldItems<'a, 's> {
    keys: &'s [String],
    items: HashMap<String, Ref<'a>>,
}

impl<'a, 's> OldItems<'a, 's> {
    pub(super) fn of(old: Option<Ref<'a>>, schema: Option<&'s Constraints>) -> Option<Self> {
        let schema = schema.filter(|own| own.list_type == ListType::Map)?;
        let keys = schema.list_map_keys.as_slice();
        let mut items = HashMap::new();
        for item in old?.items() {
            items.entry(key_text(item, keys)).or_insert(item);
        }
        Some(Self { keys, items })
    }

    pub(super) fn get(&self, item: Ref<'_>) -> Option<Ref<'a>> {
        self.items.get(&key_text(item, self.keys)).copied()
    }
}

/// The values of an item's keys, one a line; JSON has no line feeds.
fn key_text(item: Ref<'_>, keys: &[String]) -> String {
    let values = keys
        .iter()
        .map(|key| item.get(key).map(Ref::to_json).unwrap_or_default());
    values.collect::<Vec<_>>().join("\n")
}

/// Index of the second occurrence of each text that occurs more than once.
fn second_times(texts: &[String]) -> Vec<usize> {
    let mut seen = HashMap::new();
    let mut found = Vec::new();
    for (index, text) in texts.iter().enumerate() {
        let times: &mut u32 = seen.entry(text).or_insert(0);
        *times += 1;
        if *times == 2 {
            found.push(index);
        }
    }
    found
}
