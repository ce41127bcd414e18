//! Plugins that a profile enables and disables, merged with the default ones and spread over the extension points as
//! upstream does (`mergePlugins`, `expandMultiPointPlugins`).

use super::default_plugins::{DEFAULT_PLUGINS, DefaultPlugin, default_plugin};
use super::document::{Document, Object};
use crate::meter::ExtensionPoint;
use machinery_meta::{FieldError, FieldPath};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Everything of a point, or of a profile.
const ALL: &str = "*";
/// Plugins that earlier versions of the configuration knew.
const REMOVED: [&str; 4] = ["AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits"];

/// Points by their fields. The last ones belong to groups of pods: nothing can be enabled there.
const POINTS: [(&str, Option<ExtensionPoint>); 15] = [
    ("preEnqueue", Some(ExtensionPoint::PreEnqueue)),
    ("queueSort", Some(ExtensionPoint::QueueSort)),
    ("preFilter", Some(ExtensionPoint::PreFilter)),
    ("filter", Some(ExtensionPoint::Filter)),
    ("postFilter", Some(ExtensionPoint::PostFilter)),
    ("preScore", Some(ExtensionPoint::PreScore)),
    ("score", Some(ExtensionPoint::Score)),
    ("reserve", Some(ExtensionPoint::Reserve)),
    ("permit", Some(ExtensionPoint::Permit)),
    ("preBind", Some(ExtensionPoint::PreBind)),
    ("bind", Some(ExtensionPoint::Bind)),
    ("postBind", Some(ExtensionPoint::PostBind)),
    ("placementGenerate", None),
    ("placementScore", None),
    ("podGroupPostFilter", None),
];

/// A plugin that is named.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Named {
    name: Box<str>,
    weight: i64,
    path: FieldPath,
}

/// Plugins that a point names.
#[derive(Debug, Clone, Default)]
struct PluginSet {
    enabled: Vec<Named>,
    disabled: BTreeSet<Box<str>>,
}

/// Plugins that a profile names.
#[derive(Debug, Default)]
pub(super) struct PluginSets {
    multi_point: PluginSet,
    points: BTreeMap<ExtensionPoint, PluginSet>,
}

/// Names of the plugins of each point in the order of asking, and the weights of scores.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settled {
    points: BTreeMap<ExtensionPoint, Vec<&'static str>>,
    weights: BTreeMap<&'static str, i64>,
}

impl Default for Settled {
    fn default() -> Self {
        let mut unread = Document::default();
        PluginSets::default().settle(&mut unread, &FieldPath::root())
    }
}

impl Settled {
    /// Plugins of a point in the order of asking.
    pub fn at(&self, point: ExtensionPoint) -> &[&'static str] {
        self.points.get(&point).map_or(&[], Vec::as_slice)
    }

    /// Reports whether the plugin acts at the point.
    pub fn has(&self, point: ExtensionPoint, name: &str) -> bool {
        self.at(point).contains(&name)
    }

    /// The weight of a plugin's score.
    pub fn weight(&self, name: &str) -> i64 {
        self.weights.get(name).copied().unwrap_or(1)
    }
}

impl PluginSets {
    pub(super) fn read(document: &mut Document, mut object: Object<'_>) -> Self {
        let mut sets = Self {
            multi_point: read_set(document, &mut object, "multiPoint"),
            points: BTreeMap::new(),
        };
        for (name, point) in POINTS {
            let set = read_set(document, &mut object, name);
            match point {
                Some(point) => drop(sets.points.insert(point, set)),
                None => set.enabled.iter().for_each(|own| missing(document, own)),
            }
        }
        object.end(document);
        sets
    }

    /// Merges with the default plugins.
    pub(super) fn settle(self, document: &mut Document, profile: &FieldPath) -> Settled {
        let multi_point = merged(&self.multi_point);
        for own in &self.multi_point.enabled {
            if default_plugin(&own.name).is_none() {
                missing(document, own);
            }
        }
        let mut points = BTreeMap::new();
        for (_, point) in POINTS {
            let Some(point) = point else { continue };
            let set = self.points.get(&point).cloned().unwrap_or_default();
            points.insert(point, expanded(document, point, &set, &multi_point));
        }
        let weights = self.weights(&multi_point);
        let settled = Settled { points, weights };
        check_points(document, &settled, &profile.child("plugins"));
        settled
    }

    /// Weights of scores: those of the point first, then those of all points; none is one.
    fn weights(&self, multi_point: &[Named]) -> BTreeMap<&'static str, i64> {
        let own = self.points.get(&ExtensionPoint::Score);
        let own = own.into_iter().flat_map(|set| &set.enabled);
        let mut weights = BTreeMap::new();
        for named in own.chain(multi_point) {
            if let Some(plugin) = default_plugin(&named.name) {
                let weight = if named.weight == 0 { 1 } else { named.weight };
                weights.entry(plugin.name).or_insert(weight);
            }
        }
        weights
    }
}

/// The default plugins without those disabled, those that are enabled anew in their places, others behind.
fn merged(custom: &PluginSet) -> Vec<Named> {
    let mut replaced = BTreeSet::new();
    let mut all = Vec::new();
    for own in DEFAULT_PLUGINS.iter().filter(|_| !custom.disabled.contains(ALL)) {
        if custom.disabled.contains(own.name) {
            continue;
        }
        let again = custom.enabled.iter().rposition(|one| *one.name == *own.name);
        all.push(match again {
            Some(at) => {
                replaced.insert(at);
                custom.enabled[at].clone()
            }
            None => Named {
                name: own.name.into(),
                weight: own.weight,
                path: FieldPath::root(),
            },
        });
    }
    let others = custom.enabled.iter().enumerate();
    all.extend(
        others
            .filter(|(at, _)| !replaced.contains(at))
            .map(|(_, own)| own.clone()),
    );
    all
}

/// Plugins of a point: those that it names and the profile has anyway, those that the profile has, and those that the
/// point alone has.
fn expanded(
    document: &mut Document,
    point: ExtensionPoint,
    set: &PluginSet,
    multi_point: &[Named],
) -> Vec<&'static str> {
    let mut own: Vec<&'static str> = Vec::new();
    for named in &set.enabled {
        match default_plugin(&named.name) {
            None => missing(document, named),
            Some(plugin) if !acts_at(plugin, point) => {
                let detail = format!("plugin does not extend {} plugin", point.name());
                document.invalid_text(&named.path, &named.name, &detail);
            }
            Some(plugin) if own.contains(&plugin.name) => {
                let problem = FieldError::duplicate(&named.path, &*named.name);
                document.problems.push(problem);
            }
            Some(plugin) => own.push(plugin.name),
        }
    }
    let mut of_all: Vec<&'static str> = Vec::new();
    let mut again = BTreeSet::new();
    for named in multi_point.iter().filter(|_| !set.disabled.contains(ALL)) {
        let plugin = default_plugin(&named.name).filter(|plugin| acts_at(plugin, point));
        let Some(plugin) = plugin.filter(|plugin| !set.disabled.contains(plugin.name)) else {
            continue;
        };
        if own.contains(&plugin.name) {
            again.insert(plugin.name);
        } else if of_all.contains(&plugin.name) {
            let problem = FieldError::duplicate(&named.path, &*named.name);
            if !document.problems.contains(&problem) {
                document.problems.push(problem);
            }
        } else {
            of_all.push(plugin.name);
        }
    }
    let (first, last): (Vec<_>, Vec<_>) = own.into_iter().partition(|name| again.contains(name));
    first.into_iter().chain(of_all).chain(last).collect()
}

fn acts_at(plugin: &DefaultPlugin, point: ExtensionPoint) -> bool {
    plugin.points.contains(&point)
}

fn missing(document: &mut Document, own: &Named) {
    document.invalid_text(&own.path, &own.name, "plugin does not exist");
}

/// A queue has one order, and one plugin binds.
fn check_points(document: &mut Document, settled: &Settled, path: &FieldPath) {
    if settled.at(ExtensionPoint::QueueSort).len() != 1 {
        let count = settled.at(ExtensionPoint::QueueSort).len();
        let detail = format!("only one queue sort plugin required, but got {count}");
        document.required(&path.child("queueSort"), &detail);
    }
    if settled.at(ExtensionPoint::Bind).is_empty() {
        document.required(&path.child("bind"), "at least one bind plugin is needed");
    }
}

fn read_set(document: &mut Document, of: &mut Object<'_>, name: &'static str) -> PluginSet {
    let mut object = of.object(document, name);
    let mut set = PluginSet::default();
    let path = object.path("enabled");
    for (at, item) in object.list(document, "enabled").iter().enumerate() {
        set.enabled.push(read_named(document, &path.index(at), item));
    }
    let path = object.path("disabled");
    for (at, item) in object.list(document, "disabled").iter().enumerate() {
        set.disabled
            .insert(read_named(document, &path.index(at), item).name);
    }
    object.end(document);
    set
}

fn read_named(document: &mut Document, path: &FieldPath, value: &Value) -> Named {
    let mut object = document.object(path, value);
    let name = object.string(document, "name");
    let weight = object.integer(document, "weight", 0);
    let weight_path = object.path("weight");
    object.end(document);
    if !(0..=i64::from(i32::MAX)).contains(&weight) {
        document.invalid(&weight_path, weight, "not in valid range [0, 2147483647]");
    }
    if REMOVED.contains(&&*name) {
        let detail = "was invalid in version \"kubescheduler.config.k8s.io/v1\"";
        document.invalid_text(path, &name, detail);
    }
    Named {
        name,
        weight,
        path: path.clone(),
    }
}
