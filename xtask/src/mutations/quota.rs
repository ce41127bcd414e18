//! Lines of the quota of stored bytes.

use super::{Mutation, Suite};

const RULES: &[&str] = &["--lib", "quota::tests"];
const ETCD: &[&str] = &["--lib", "quota_on_etcd"];
const STORY: &[&str] = &["--test", "history", "history_acknowledged"];
const PINS: &[&str] = &["--lib", "live::"];
const PAGING: &[&str] = &["--test", "paging"];
const SERVER: &[&str] = &["--test", "storage_quota"];

pub(super) const SUITES: &[Suite] = &[
    Suite {
        package: "apiserver-storage",
        folder: "apiserver/storage/src",
        mutations: &[
            Mutation {
                name: "quota: a share has no bound",
                file: "quota/ledger.rs",
                from: "if used.saturating_add(requested) > limited {",
                to: "if used.saturating_add(requested) > limited && false {",
                proof: RULES,
            },
            Mutation {
                name: "quota: the store has no bound",
                file: "quota/ledger.rs",
                from: "if self.total.saturating_add(requested) > limit {",
                to: "if self.total.saturating_add(requested) > limit && false {",
                proof: RULES,
            },
            Mutation {
                name: "quota: a mark of deletion is bounded",
                file: "quota/ledger.rs",
                from: "if requested == 0 || marks_deletion(old, record) {",
                to: "if requested == 0 || marks_deletion(old, record) && false {",
                proof: RULES,
            },
            Mutation {
                name: "quota: a deleted object grows without a bound",
                file: "quota/ledger.rs",
                from: "is_live && new.header.is_deleting()",
                to: "(is_live || old.is_some()) && new.header.is_deleting()",
                proof: RULES,
            },
            Mutation {
                name: "quota: a deletion's policy is bounded",
                file: "quota/ledger.rs",
                from: "old.is_deleting() && OF_POLICIES",
                to: "old.is_deleting() && [\"\"; 0]",
                proof: RULES,
            },
            Mutation {
                name: "quota: who takes a finalizer has room of the system",
                file: "quota/ledger.rs",
                from: "claim == Claim::System || old.is_deleting()",
                to: "old.finalizers.len() > new.header.finalizers.len() || claim == Claim::System || old.is_deleting()",
                proof: RULES,
            },
            Mutation {
                name: "quota: what goes along with a deletion is bounded",
                file: "quota/ledger.rs",
                from: "deletes && new.namespace.is_empty()",
                to: "deletes && new.namespace.is_empty() && false",
                proof: RULES,
            },
            Mutation {
                name: "quota: whatever goes along with a deletion has no bound",
                file: "quota/ledger.rs",
                from: "deletes && new.namespace.is_empty()",
                to: "deletes",
                proof: RULES,
            },
            Mutation {
                name: "what goes along with a deletion fills a full disk",
                file: "write.rs",
                from: "deletes && record.header.key.namespace.is_empty()",
                to: "{ let _ = record; deletes }",
                proof: &["--lib", "write::"],
            },
            Mutation {
                name: "quota: a refused group stays counted",
                file: "quota/ledger.rs",
                from: "self.take_back(&group[..at], before);",
                to: "let _ = at;",
                proof: RULES,
            },
            Mutation {
                name: "quota: events share the account of all else",
                file: "quota/ledger.rs",
                from: "&mut self.expiring",
                to: "&mut self.lasting",
                proof: RULES,
            },
            Mutation {
                name: "quota: the system has no reserve",
                file: "quota/mod.rs",
                from: "Tier::Share => self.store_bytes - reserve,",
                to: "Tier::Share => self.store_bytes,",
                proof: RULES,
            },
            Mutation {
                name: "quota: the system's namespaces have a share",
                file: "quota/mod.rs",
                from: "if namespace.is_empty() || is_system() {",
                to: "if namespace.is_empty() || is_system() && false {",
                proof: RULES,
            },
            Mutation {
                name: "quota: what the disk refused stays counted",
                file: "backends/log/writer.rs",
                from: "for event in events.rev() {",
                to: "for event in events.rev().take(0) {",
                proof: STORY,
            },
            Mutation {
                name: "quota: what the disk refused is taken back in any order",
                file: "backends/log/writer.rs",
                from: "for event in events.rev() {",
                to: "for event in events {",
                proof: STORY,
            },
            Mutation {
                name: "quota: another form replaces what a queued change was counted to replace",
                file: "backends/log/engine.rs",
                from: "if writer.is_queued(&entry.key) {",
                to: "if writer.is_queued(&entry.key) && false {",
                proof: STORY,
            },
            Mutation {
                name: "quota: another form is not counted",
                file: "backends/log/engine.rs",
                from: "replaced.iter().for_each(|recached| writer.recached(recached));",
                to: "",
                proof: STORY,
            },
            Mutation {
                name: "quota: a write on its way to etcd has no reservation",
                file: "quota/ledger.rs",
                from: "self.add(new.namespace, more);",
                to: "let more = Account::default();",
                proof: ETCD,
            },
            Mutation {
                name: "quota: a reservation is never given back",
                file: "backends/etcd/account.rs",
                from: "let later = self.settling.split_off(&revision.next());",
                to: "let later = self.settling.split_off(&Revision::ZERO);",
                proof: ETCD,
            },
            Mutation {
                name: "quota: a reservation of a write without an answer is never given back",
                file: "backends/etcd/account.rs",
                from: "self.mirror.account().ledger.release(&reserved);",
                to: "drop(reserved);",
                proof: ETCD,
            },
            Mutation {
                name: "quota: what etcd held before it was read anew stays counted",
                file: "backends/etcd/account.rs",
                from: "old.root.values().for_each(|entry| self.change(Some(entry), None));",
                to: "",
                proof: ETCD,
            },
            Mutation {
                name: "a state that holds too much is kept",
                file: "live.rs",
                from: "left.saturating_sub(pin.left) > self.limit;",
                to: "left.saturating_sub(pin.left) > self.limit && false;",
                proof: PAGING,
            },
            Mutation {
                name: "a state that held too much is put together again",
                file: "backends/log/mod.rs",
                from: "None if asked < pins.floor() => Err(",
                to: "None if asked < pins.floor() && false => Err(",
                proof: PAGING,
            },
            Mutation {
                name: "lists of the past have no room in common",
                file: "live.rs",
                from: "while self.lists.len() > 1 &&",
                to: "while false &&",
                proof: PINS,
            },
        ],
    },
    Suite {
        package: "apiserver-server",
        folder: "apiserver",
        mutations: &[
            Mutation {
                name: "quota: a refusal is not forbidden",
                file: "registry/src/store/mod.rs",
                from: "RegistryError::forbidden(&self.row.group_resource(), name, error.to_string())",
                to: "RegistryError::conflict(&self.row.group_resource(), name, error.to_string())",
                proof: SERVER,
            },
            Mutation {
                name: "quota: a dry run of a create is not bounded",
                file: "registry/src/store/create.rs",
                from: "self.check_room(ctx, &admitted, write, with)?;",
                to: "drop((write, with));",
                proof: SERVER,
            },
            Mutation {
                name: "quota: a dry run of an update is not bounded",
                file: "registry/src/store/update.rs",
                from: "self.check_room(ctx, &admitted, write, with)?;",
                to: "drop((write, with));",
                proof: SERVER,
            },
            Mutation {
                name: "quota: a finalizer cannot be taken",
                file: "registry/src/store/update.rs",
                from: "managed_fields::forget(object);",
                to: "",
                proof: SERVER,
            },
            Mutation {
                name: "quota: the system is a user",
                file: "registry/src/store/mod.rs",
                from: "UserClass::System | UserClass::Administrator => Claim::System,",
                to: "UserClass::System | UserClass::Administrator => Claim::User,",
                proof: SERVER,
            },
            Mutation {
                name: "quota: users are the system",
                file: "registry/src/store/mod.rs",
                from: "UserClass::Ordinary => Claim::User,",
                to: "UserClass::Ordinary => Claim::System,",
                proof: SERVER,
            },
            Mutation {
                name: "quota: a full store is ready",
                file: "server/src/health.rs",
                from: "(_, true) => Err(\"the quota of the store is used up: delete objects to make room\".to_owned()),",
                to: "(false, true) => Ok(()),",
                proof: SERVER,
            },
            Mutation {
                name: "quota: a start counts nothing",
                file: "storage/src/backends/log/engine.rs",
                from: "Ledger::of(options.quota.clone(), live.root.values())",
                to: "Ledger::of(options.quota.clone(), std::iter::empty())",
                proof: SERVER,
            },
        ],
    },
];
