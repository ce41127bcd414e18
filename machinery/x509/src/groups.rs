//! Users with and without a proven identity.

use machinery_meta::UserInfo;

const ANONYMOUS: &str = "system:anonymous";

/// The user, in `system:authenticated` (upstream's `AuthenticatedGroupAdder`). It is not added to `system:anonymous`, whatever names
/// that user, nor beside `system:unauthenticated`.
#[must_use]
pub fn with_authenticated_group(mut user: UserInfo) -> UserInfo {
    if !is_anonymous(&user) && !user.in_group(UserInfo::AUTHENTICATED) {
        user.groups.push(UserInfo::AUTHENTICATED.to_owned());
    }
    user
}

/// Reports whether a user counts as anonymous, by name or by group.
pub fn is_anonymous(user: &UserInfo) -> bool {
    user.name == ANONYMOUS || user.in_group(UserInfo::UNAUTHENTICATED)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cases of upstream's `TestAuthenticatedGroupAdder`.
    #[test]
    fn authenticated_group_is_added_where_upstream_adds_it() {
        for (case, name, groups, expected) in [
            (
                "add",
                "user",
                &["some-group"][..],
                &["some-group", "system:authenticated"][..],
            ),
            (
                "don't double add",
                "user",
                &["system:authenticated", "some-group"],
                &["system:authenticated", "some-group"],
            ),
            (
                "don't add for anon",
                "system:anonymous",
                &["some-group"],
                &["some-group"],
            ),
            (
                "don't add for unauthenticated group",
                "user",
                &["system:unauthenticated", "some-group"],
                &["system:unauthenticated", "some-group"],
            ),
        ] {
            let user = with_authenticated_group(UserInfo::named(name, groups.iter().copied()));
            assert_eq!(user.groups, expected, "{case}");
        }
    }

    #[test]
    fn anonymous_user_is_known_by_name_or_group() {
        assert!(is_anonymous(&UserInfo::anonymous()));
        assert!(is_anonymous(&UserInfo::named("system:anonymous", ["blue"])));
        assert!(is_anonymous(&UserInfo::named("anna", ["system:unauthenticated"])));
        assert!(!is_anonymous(&UserInfo::named("anna", ["blue"])));
    }
}
