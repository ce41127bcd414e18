//! Label selectors as objects have them (`matchLabels`, `matchExpressions`).

use machinery_meta::ObjectHeader;
use machinery_schema::Ref;

/// Reports whether a header's labels match; an empty selector matches everything.
pub fn matches(selector: Ref<'_>, header: &ObjectHeader) -> bool {
    let labels = selector.get("matchLabels").into_iter().flat_map(Ref::entries);
    for (key, value) in labels {
        if header.label(key) != value.as_str() {
            return false;
        }
    }
    selector.list("matchExpressions").all(|requirement| {
        let own = header.label(requirement.str("key"));
        let listed = || {
            requirement
                .list("values")
                .filter_map(Ref::as_str)
                .any(|value| Some(value) == own)
        };
        match requirement.str("operator") {
            "In" => own.is_some() && listed(),
            "NotIn" => own.is_none() || !listed(),
            "Exists" => own.is_some(),
            "DoesNotExist" => own.is_none(),
            _ => false,
        }
    })
}
