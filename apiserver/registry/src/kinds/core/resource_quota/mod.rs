//! ResourceQuota: bounds for all of a namespace together, and a warning of requests above their limits.

mod columns;
pub mod validation;

use crate::engine::kind::Kind;
use crate::engine::traits::Traits;
use crate::engine::validation_rules::ValidationRules;
use crate::shared::validation::quantity;
use machinery_schema::Ref;

pub(crate) static KIND: Kind = Kind::of("", "resourcequotas")
    .traits(Traits::PLAIN.returned())
    .rules(
        ValidationRules::create(validation::validate)
            .update(validation::validate_update)
            .status(validation::validate_status),
    )
    .warnings(create_warnings)
    .columns(columns::cells);

fn create_warnings(object: Ref<'_>, old: Option<Ref<'_>>) -> Vec<String> {
    match old {
        None => warnings(object),
        Some(_) => Vec::new(),
    }
}

/// Resources whose requests and limits are compared; the first two also stand by their bare name for their requests.
const COMPARED: [&str; 4] = ["cpu", "memory", "storage", "ephemeral-storage"];

/// A warning for each resource whose bound on requests is above that on limits.
fn warnings(object: Ref<'_>) -> Vec<String> {
    let hard = object.at(&["spec", "hard"]);
    let bound = |name: &str| {
        let value = hard.and_then(|hard| hard.get(name))?;
        Some((name.to_owned(), quantity(value)?))
    };
    let warning = |resource: &&str| {
        let bare = matches!(*resource, "cpu" | "memory");
        let request = bound(&format!("requests.{resource}")).or_else(|| bound(resource).filter(|_| bare));
        let (request, limit) = (request?, bound(&format!("limits.{resource}"))?);
        (request.1 > limit.1).then(|| {
            let ((request, wanted), (limit, most)) = (request, limit);
            format!("ResourceQuota {request} ({wanted}) should be less than {limit} ({most})")
        })
    };
    COMPARED.iter().filter_map(warning).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinery_schema::Tree;
    use serde_json::{Value, json};

    /// Upstream's `Test_WarningsOnCreate`.
    #[track_caller]
    fn check(hard: Value, expected: &[&str]) {
        let quota = json!({"spec": {"hard": hard}}).to_string();
        let quota = Tree::from_json(&quota).unwrap();
        assert_eq!(warnings(quota.root()), expected);
    }

    #[test]
    fn quota_warns_of_requests_above_limits() {
        check(json!({}), &[]);
        check(
            json!({"requests.cpu": "500m", "limits.cpu": "1", "requests.memory": "1Gi", "limits.memory": "2Gi",
                "requests.storage": "1Gi", "limits.storage": "2Gi", "requests.ephemeral-storage": "1Gi",
                "limits.ephemeral-storage": "2Gi"}),
            &[],
        );
        check(
            json!({"requests.cpu": "2", "limits.cpu": "1", "requests.memory": "3Gi", "limits.memory": "2Gi",
                "requests.storage": "3Gi", "limits.storage": "2Gi", "requests.ephemeral-storage": "3Gi",
                "limits.ephemeral-storage": "2Gi"}),
            &[
                "ResourceQuota requests.cpu (2) should be less than limits.cpu (1)",
                "ResourceQuota requests.memory (3Gi) should be less than limits.memory (2Gi)",
                "ResourceQuota requests.storage (3Gi) should be less than limits.storage (2Gi)",
                "ResourceQuota requests.ephemeral-storage (3Gi) should be less than limits.ephemeral-storage (2Gi)",
            ],
        );
        check(
            json!({"cpu": "2", "limits.cpu": "1", "memory": "3Gi", "limits.memory": "2Gi"}),
            &[
                "ResourceQuota cpu (2) should be less than limits.cpu (1)",
                "ResourceQuota memory (3Gi) should be less than limits.memory (2Gi)",
            ],
        );
    }
}
