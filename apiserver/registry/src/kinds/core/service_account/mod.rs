//! ServiceAccount: an identity for pods.

use crate::engine::kind::Kind;
use crate::engine::traits::Traits;
use machinery_schema::Tree;

pub(crate) static KIND: Kind = Kind::of("", "serviceaccounts")
    .traits(Traits::PLAIN.returned())
    .prepare_for_create(|_, account| keep_names_of_secrets(account))
    .prepare_for_update(|_, _, account, _| keep_names_of_secrets(account))
    .columns(crate::shared::columns::format::name_and_age);

/// Of a reference to a Secret nothing but the name is read, so that nothing else is stored.
fn keep_names_of_secrets(account: &mut Tree) {
    account.with(&["secrets"], |mut secrets| {
        secrets.each_item(|mut secret| {
            let others: Vec<String> = secret
                .as_ref()
                .entries()
                .map(|(name, _)| name.to_owned())
                .filter(|name| name != "name")
                .collect();
            for name in others {
                secret.remove(&name);
            }
        });
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_of_an_account_are_names() {
        let secrets = r#"{"secrets":[{"kind":"Secret","name":"a","uid":"u"},{"name":"b"}]}"#;
        let mut account = Tree::from_json(secrets).unwrap();
        keep_names_of_secrets(&mut account);
        assert_eq!(
            account.root().to_json(),
            r#"{"secrets":[{"name":"a"},{"name":"b"}]}"#
        );
    }
}
