//! Feature gates, as `--feature-gates` sets them: upstream's of this release, by the generated table.
//!
//! The features of this server are those of upstream's gates by default. A gate is set to another state where [`effects`] has it:
//! the gate is honoured, or its state makes no difference here. All others are refused, so that no administrator takes a feature
//! for on that is absent, or for off that is on. Dependencies between gates are not looked at: the states that they would refuse
//! are refused already, or have no effect.

mod effects;

pub use effects::GateComponent;

use machinery_api::FeatureGate;
use std::collections::BTreeMap;

const ALL_ALPHA: &str = "AllAlpha";
const ALL_BETA: &str = "AllBeta";
/// The component of gates without a prefix, upstream's default.
const KUBE: &str = "kube";
/// Gates that one refusal names.
const NAMED: usize = 8;

/// States of gates that differ from their defaults, or were given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FeatureGates(BTreeMap<String, bool>);

impl FeatureGates {
    /// Reads values of the flag: `Gate=true`, or with upstream's prefix `kube:Gate=true`.
    ///
    /// # Errors
    /// Upstream's words for a gate that is unknown, locked or without a state, and for another component's.
    pub fn parse<'a>(values: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        let (mut given, mut prefixed, mut plain) = (BTreeMap::new(), false, false);
        let items = values.into_iter().flat_map(|value| value.split(','));
        for item in items.filter(|item| !item.is_empty()) {
            let setting = match item.split_once(':') {
                Some((component, rest)) if component.trim() == KUBE => {
                    prefixed = true;
                    rest
                }
                Some((component, _)) => {
                    return Err(format!("component not registered: {}", component.trim()));
                }
                None => {
                    plain = true;
                    item
                }
            };
            let (name, state) = setting_of(setting)?;
            given.insert(name.to_owned(), state);
        }
        if prefixed && plain {
            let words = "set kube feature gates with default empty prefix or kube: prefix consistently, do not mix use";
            return Err(words.to_owned());
        }
        Self::of(given)
    }

    /// Gates with these states.
    ///
    /// # Errors
    /// See [`FeatureGates::parse`].
    pub fn of(given: BTreeMap<String, bool>) -> Result<Self, String> {
        let locked = given
            .iter()
            .map(|(name, state)| refused_by_upstream(name, *state));
        let problems: Vec<String> = locked
            .collect::<Result<Vec<_>, _>>()?
            .into_iter()
            .flatten()
            .collect();
        match problems.as_slice() {
            [] => Ok(Self(with_stages(given))),
            [one] => Err(one.clone()),
            all => Err(format!("[{}]", all.join(", "))),
        }
    }

    /// Reports whether a gate is on.
    pub fn is_enabled(&self, name: &str) -> bool {
        let given = self.0.get(name).copied();
        given.unwrap_or_else(|| machinery_api::table().gate_default(name))
    }

    /// Every gate with its stage, as metrics have it, and its state, sorted by name.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&str, &str, bool)> {
        let special = [(ALL_ALPHA, "ALPHA"), (ALL_BETA, "BETA")].into_iter();
        let special = special.map(|(name, stage)| (name, stage, self.0.get(name) == Some(&true)));
        let gates = machinery_api::table().feature_gates().iter();
        special.chain(gates.map(|gate| (gate.name.as_str(), stage_label(gate), self.is_enabled(&gate.name))))
    }

    /// Names of the fields' gates and others whose states differ from the defaults.
    fn changed(&self) -> impl Iterator<Item = (&FeatureGate, bool)> {
        let gates = machinery_api::table().feature_gates().iter();
        let states = gates.map(|gate| (gate, self.is_enabled(&gate.name)));
        states.filter(|(gate, state)| gate.default != *state)
    }

    /// Reports whether every gate has its default.
    pub fn are_defaults(&self) -> bool {
        self.changed().next().is_none()
    }

    /// The refusal of gates that a component cannot have in these states; `None` where there is none.
    pub fn refusal(&self, component: GateComponent) -> Option<String> {
        let refused = self
            .changed()
            .filter(|(gate, _)| !effects::takes(&gate.name, component));
        let refused: Vec<(&FeatureGate, bool)> = refused.collect();
        let said = refused.iter().take(NAMED).map(|(gate, state)| {
            let has = match *state {
                true => "does not have the feature",
                false => "always has the feature on",
            };
            format!(
                "cannot set feature gate {} to {state}, {component} {has}",
                gate.name
            )
        });
        let mut said: Vec<String> = said.collect();
        let more = refused.len().saturating_sub(NAMED);
        if more > 0 {
            said.push(format!("and {more} more gates"));
        }
        (!said.is_empty()).then(|| said.join("; "))
    }
}

/// Name and state, in the way of Go's `ParseBool`.
fn setting_of(item: &str) -> Result<(&str, bool), String> {
    let Some((name, state)) = item.split_once('=') else {
        return Err(format!("missing bool value for {}", item.trim()));
    };
    let (name, state) = (name.trim(), state.trim());
    match state {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok((name, true)),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok((name, false)),
        _ => Err(format!(
            "invalid value of {name}={state}, err: strconv.ParseBool: parsing {state:?}: invalid syntax"
        )),
    }
}

/// Upstream's refusals: of an unknown gate at once, of a locked one beside others.
fn refused_by_upstream(name: &str, state: bool) -> Result<Option<String>, String> {
    if [ALL_ALPHA, ALL_BETA].contains(&name) {
        return Ok(None);
    }
    let gates = machinery_api::table().feature_gates();
    let Some(gate) = gates.iter().find(|gate| gate.name == name) else {
        return Err(format!("unrecognized feature gate: {name}"));
    };
    let is_locked = gate.locked && gate.default != state;
    Ok(is_locked.then(|| {
        let default = gate.default;
        format!("cannot set feature gate {name} to {state}, feature is locked to {default}")
    }))
}

/// The states with those of the gates of a stage that were not given themselves.
fn with_stages(mut given: BTreeMap<String, bool>) -> BTreeMap<String, bool> {
    for (all, stage) in [(ALL_ALPHA, "ALPHA"), (ALL_BETA, "BETA")] {
        let Some(state) = given.get(all).copied() else {
            continue;
        };
        let gates = machinery_api::table().feature_gates().iter();
        for gate in gates.filter(|gate| gate.stage == stage && !gate.locked) {
            given.entry(gate.name.clone()).or_insert(state);
        }
    }
    given
}

/// Upstream's label of a stage, which is empty once a feature is general.
fn stage_label(gate: &FeatureGate) -> &str {
    match gate.stage.as_str() {
        "GA" => "",
        stage => stage,
    }
}

#[cfg(test)]
mod tests;
