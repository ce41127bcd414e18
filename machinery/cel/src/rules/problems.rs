//! Problems of rules, found when a definition is written.

use super::{Node, Rule};
use machinery_meta::walked_path::WalkedPath;
use machinery_meta::{FieldError, FieldPath};

/// Estimated cost of a rule, for as often as its value can be in a request (upstream's `StaticEstimatedCostLimit`).
const MAX_COST: u64 = 10_000_000;
/// The same of all rules of a schema together.
const MAX_TOTAL_COST: u64 = 100_000_000;

/// Greatest work of all rules of an object together.
pub(super) fn greatest_work(root: &Node) -> u64 {
    Finder::over(root, &WalkedPath::ROOT).work
}

pub(super) fn of(root: &Node, path: &FieldPath) -> Vec<FieldError> {
    let start = match path.is_root() {
        true => WalkedPath::ROOT,
        false => WalkedPath::of(path.as_str()),
    };
    let mut finder = Finder::over(root, &start);
    if finder.total > MAX_TOTAL_COST {
        let name = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        let detail = exceeded(name, finder.total, MAX_TOTAL_COST);
        finder.found.push(FieldError::forbidden(path, detail));
    }
    finder.found
}

struct Finder {
    found: Vec<FieldError>,
    total: u64,
    /// With what costs do not count; messages are made as often as rules fail.
    work: u64,
}

impl Finder {
    fn over(root: &Node, path: &WalkedPath<'_>) -> Self {
        let mut finder = Self {
            found: Vec::new(),
            total: 0,
            work: 0,
        };
        finder.node(root, path, Some(1), None);
        finder
    }

    /// `count` is how often the value can be in an object, when that is known; `apart` leads to what replaces it as a whole.
    fn node(
        &mut self,
        node: &Node,
        path: &WalkedPath<'_>,
        count: Option<u64>,
        apart: Option<&WalkedPath<'_>>,
    ) {
        let rules = path.child("x-kubernetes-validations");
        for (at, rule) in node.rules.iter().enumerate() {
            self.rule(rule, &rules.index(at), count.unwrap_or(rule.cardinality), apart);
        }
        for (at, part) in node.all_of.iter().enumerate() {
            self.node(part, &path.child("allOf").index(at), count, apart);
        }
        let children = count
            .zip(node.max_children)
            .map(|(own, more)| own.saturating_mul(more));
        let atomic = apart.or(node.atomic.then_some(path));
        for (name, field) in &node.fields {
            self.node(field, &path.child("properties").key(name), count, atomic);
        }
        if let Some(values) = &node.values {
            self.node(values, &path.child("additionalProperties"), children, atomic);
        }
        if let Some(items) = &node.items {
            let apart = apart.or(node.keys.is_empty().then_some(path));
            self.node(items, &path.child("items"), children, apart);
        }
    }

    fn rule(&mut self, rule: &Rule, path: &WalkedPath<'_>, count: u64, apart: Option<&WalkedPath<'_>>) {
        let place = path.child("rule");
        if rule.text.is_empty() {
            self.found
                .push(FieldError::required(&place.to_path(), "rule is not specified"));
            return;
        }
        let cost = rule.costs.0.saturating_mul(count);
        self.total = self.total.saturating_add(cost).saturating_add(rule.costs.1);
        let work = rule.works.0.saturating_add(rule.works.1).saturating_mul(count);
        self.work = self.work.saturating_add(work);
        if cost > MAX_COST {
            let detail = exceeded("estimated rule cost", cost, MAX_COST);
            self.found.push(FieldError::forbidden(&place.to_path(), detail));
        }
        match &rule.program {
            Err(problem) => {
                let problem = FieldError::invalid(&place.to_path(), rule.text.as_str(), problem.as_str());
                self.found.push(problem);
            }
            Ok(program) if program.uses("oldSelf") => {
                if let Some(apart) = apart.map(WalkedPath::to_path) {
                    let detail = format!(
                        "oldSelf cannot be used on the uncorrelatable portion of the schema within {apart}"
                    );
                    self.found
                        .push(FieldError::invalid(&place.to_path(), rule.text.as_str(), detail));
                }
            }
            Ok(_) if rule.optional_old_self => {
                let detail = "may not be set if oldSelf is not used in rule";
                self.found.push(FieldError::invalid(
                    &path.child("optionalOldSelf").to_path(),
                    true,
                    detail,
                ));
            }
            Ok(_) => {}
        }
        let place = path.child("messageExpression");
        if let Some(Err(problem)) = &rule.message_expression {
            self.found.push(FieldError::invalid(
                &place.to_path(),
                rule.text.as_str(),
                problem.as_str(),
            ));
        }
        if rule.costs.1 > MAX_COST {
            let detail = exceeded("estimated messageExpression cost", rule.costs.1, MAX_COST);
            self.found.push(FieldError::forbidden(&place.to_path(), detail));
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a factor to be read")]
fn exceeded(name: &str, cost: u64, limit: u64) -> String {
    let factor = cost as f64 / limit as f64;
    let factor = if factor > 100.0 {
        "more than 100x".to_owned()
    } else if factor < 1.5 {
        format!("{factor:.6}x")
    } else {
        format!("{factor:.1}x")
    };
    format!(
        "{name} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
    )
}
