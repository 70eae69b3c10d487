//! The stable codes. A code is never renumbered or reused; its page is what `explain` prints.

use serde::{Serialize, Serializer};
use strum::EnumIter;

use super::Severity;

/// An object as YAML: its kind, its metadata, the lines of its spec.
macro_rules! object {
    ($kind:literal, $metadata:literal => $($line:literal)*) => {
        concat!(
            "apiVersion: homeostat/v1alpha1\nkind: ", $kind, "\nmetadata: { ", $metadata,
            " }\nspec:\n", $("  ", $line, "\n",)*
        )
    };
}

/// An agent as YAML: the lines of its spec.
macro_rules! agent {
    ($($line:literal)*) => { object!("Agent", "name: ada, workspace: core" => $($line)*) };
}

/// A fleet as YAML, with more lines around its spec.
macro_rules! fleet {
    ($($line:literal)*) => {
        concat!(
            "apiVersion: homeostat/v1alpha1\nkind: Fleet\nmetadata: { name: fleet }\nspec: {}\n",
            $($line, "\n",)*
        )
    };
}

/// The explanation of one code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// Why it is a fault, in one or two sentences.
    pub cause: &'static str,
    /// A file with this fault and no other, beside [`BESIDE`]. An ellipsis, `<NUL>` or `\\xe9`
    /// stands for what is too long or cannot be shown.
    pub wrong: &'static str,
    /// The same file done right.
    pub right: &'static str,
}

/// What the examples refer to, as YAML.
pub const BESIDE: &str = concat!(
    object!("Workspace", "name: core" => "repos: [site]"),
    "---\n",
    object!("Repo", "name: site, workspace: core" => "source: ../site"),
    "---\n",
    object!("Repo", "name: infra, workspace: core" => "source: ../infra"),
    "---\n",
    object!("Adapter", "name: echo" => "type: command" "command: echo"),
    "---\n",
    object!("Agent", "name: writer, workspace: core" => "title: Writer" "adapter: echo"),
    "---\n",
    object!("Agent", "name: reviewer, workspace: core" => "title: Reviewer" "adapter: echo"),
    "---\n",
    object!("Space", "name: docs, workspace: core" => "agents: [writer]"),
);

macro_rules! codes {
    ($($variant:ident $id:literal $slug:literal $severity:ident $doc:literal {
        $cause:literal
        wrong $wrong:expr;
        right $right:expr;
    })*) => {
        /// What kind of fault a finding is. H01 reading and YAML, H02 the envelope, H03 the shape
        /// of one object, H04 objects among each other, H05 comments to `validate`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, EnumIter)]
        pub enum Code {
            $(#[doc = $doc] $variant,)*
        }

        impl Code {
            /// The stable identifier, such as `H0301`.
            pub const fn id(self) -> &'static str {
                match self {
                    $(Self::$variant => $id,)*
                }
            }

            /// The stable name, such as `unknown-field`.
            pub const fn slug(self) -> &'static str {
                match self {
                    $(Self::$variant => $slug,)*
                }
            }

            /// How bad every finding with this code is.
            pub const fn severity(self) -> Severity {
                match self {
                    $(Self::$variant => Severity::$severity,)*
                }
            }

            /// What it says in general.
            pub const fn title(self) -> &'static str {
                match self {
                    $(Self::$variant => $doc,)*
                }
            }

            /// Its explanation.
            pub const fn page(self) -> Page {
                match self {
                    $(Self::$variant => Page { cause: $cause, wrong: $wrong, right: $right },)*
                }
            }
        }
    };
}

impl Code {
    /// Whether a comment may let a finding pass: a warning that is not itself about such a
    /// comment. What an error leaves of a revision cannot be used, so none can be let pass.
    pub const fn is_allowable(self) -> bool {
        matches!(self.severity(), Severity::Warning)
            && !matches!(self, Self::BadAllow | Self::UnusedAllow)
    }

    /// The code that `text` names by its identifier or its name, in any case.
    pub fn named(text: &str) -> Option<Self> {
        use strum::IntoEnumIterator;
        Self::iter().find(|code| {
            code.id().eq_ignore_ascii_case(text) || code.slug().eq_ignore_ascii_case(text)
        })
    }
}

impl Serialize for Code {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.id())
    }
}

codes! {
    NotUtf8 "H0101" "not-utf8" Error "Bytes that are not UTF-8." {
        "Manifests are UTF-8 text. The place is the first byte that no character begins or continues with; the rest of the file is not read."
        wrong agent!("title: Andr\\xe9" "adapter: echo");
        right agent!("title: André" "adapter: echo");
    }
    FileTooLarge "H0102" "file-too-large" Error "A file above the size limit." {
        "A manifest file holds at most 1 MiB, so that one commit cannot exhaust the daemon. Split it into several files."
        wrong concat!("# 3 MiB in one file: …\n", fleet!());
        right concat!("# Several files, such as fleet.yaml, agents.yaml and tickets/2026-01.yaml.\n", fleet!());
    }
    Syntax "H0103" "yaml-syntax" Error "Text that is not YAML." {
        "The YAML parser cannot go on here. The rest of this document is not checked; the documents after the next `---` are."
        wrong object!("Space", "name: night, workspace: core" => "agents: [writer, reviewer");
        right object!("Space", "name: night, workspace: core" => "agents: [writer, reviewer]");
    }
    ControlCharacter "H0104" "control-character" Error "A character that no text has." {
        "NUL and the other control characters are not allowed in YAML, and what shows them may act on them."
        wrong agent!("title: \"Ada<NUL>\"" "adapter: echo");
        right agent!("title: \"Ada\"" "adapter: echo");
    }
    DuplicateKey "H0105" "duplicate-key" Error "The same key twice in one mapping." {
        "A mapping names each key once. Which of the two was meant cannot be known."
        wrong agent!("title: Ada" "title: Grace" "adapter: echo");
        right agent!("title: Grace" "adapter: echo");
    }
    KeyNotText "H0106" "key-not-text" Error "A key that is not text." {
        "Keys are text. A number, `true`, `null`, a list or a mapping cannot name a field; quote it if text was meant."
        wrong object!("Agent", "name: ada, workspace: core, labels: { 2024: hired }" => "title: Ada" "adapter: echo");
        right object!("Agent", "name: ada, workspace: core, labels: { \"2024\": hired }" => "title: Ada" "adapter: echo");
    }
    TooDeep "H0107" "too-deep" Error "Nesting below the depth limit." {
        "Lists and mappings nest at most 64 deep. The rest of this document is not checked."
        wrong fleet!("x-notes: [[[[ … ]]]]");
        right fleet!("x-notes: [[one], [two]]");
    }
    TooManyNodes "H0108" "too-many-nodes" Error "A document above the size limit." {
        "One document holds at most 50,000 values. The rest of it is not checked. Split it into several objects."
        wrong fleet!("x-notes: [1, …]");
        right fleet!("x-notes: [1, 2]");
    }
    TooManyAliases "H0109" "too-many-aliases" Error "Aliases that expand beyond the size limit." {
        "An alias counts as everything that it stands for, and one document holds at most 50,000 values when all aliases are written out."
        wrong fleet!("x-a: &a [x, x, x, x, x, x, x, x, x]" "x-b: &b [*a, *a, *a, *a, *a, *a, *a, *a, *a]" "x-c: &c [*b, *b, *b, *b, *b, *b, *b, *b, *b]" "x-d: &d [*c, *c, *c, *c, *c, *c, *c, *c, *c]" "x-e: &e [*d, *d, *d, *d, *d, *d, *d, *d, *d]");
        right fleet!("x-a: &a [x, x]" "x-b: [*a, *a]");
    }
    BadAlias "H0110" "bad-alias" Error "An alias that stands for nothing, or for itself." {
        "An alias `*name` stands for the value that `&name` marked earlier in the same document; a value cannot contain itself."
        wrong fleet!("x-night: *crew");
        right fleet!("x-crew: &crew [writer]" "x-night: *crew");
    }
    BadMerge "H0111" "bad-merge" Error "A merge key with something that is not a mapping." {
        "`<<` copies the fields of a mapping, or of a list of mappings, into this one; own fields win."
        wrong concat!("x-defaults: &defaults UTC\n", object!("Fleet", "name: fleet" => "<<: *defaults"));
        right concat!("x-defaults: &defaults { zone: UTC }\n", object!("Fleet", "name: fleet" => "<<: *defaults"));
    }
    UnknownTag "H0112" "unknown-tag" Error "A tag that means nothing here." {
        "Tags other than YAML's own (`!!str`, `!!int`, `!!bool`, …) are not used, and YAML's own must fit the value."
        wrong agent!("title: !upper ada" "adapter: echo");
        right agent!("title: ADA" "adapter: echo");
    }
    TooManyDocuments "H0113" "too-many-documents" Error "A file with more documents than the limit." {
        "One file holds at most 1,000 documents. Those behind the limit are not checked."
        wrong concat!(fleet!(), "---\n# 1,001 documents in one file: …\n");
        right concat!("# Several files, such as tickets/2026-01.yaml and tickets/2026-02.yaml.\n", fleet!());
    }
    AmbiguousText "H0114" "ambiguous-text" Warning "Text that older YAML reads as true or false." {
        "Bare `yes`, `no`, `on` and `off` are text here, as YAML 1.2 says; other programs read them as true or false. Quotes say what is meant."
        wrong object!("Agent", "name: ada, workspace: core, labels: { remote: yes }" => "title: Ada" "adapter: echo");
        right object!("Agent", "name: ada, workspace: core, labels: { remote: \"yes\" }" => "title: Ada" "adapter: echo");
    }

    NotAnObject "H0201" "not-an-object" Error "A document that is not a mapping." {
        "Every document is one object: a mapping with apiVersion, kind, metadata and spec."
        wrong "- apiVersion: homeostat/v1alpha1\n  kind: Fleet\n  metadata: { name: fleet }\n  spec: {}\n";
        right fleet!();
    }
    UnknownApiVersion "H0202" "unknown-api-version" Error "An apiVersion that does not exist." {
        "This version of homeostat reads one API version."
        wrong "apiVersion: homeostat/v1\nkind: Fleet\nmetadata: { name: fleet }\nspec: {}\n";
        right fleet!();
    }
    UnknownKind "H0203" "unknown-kind" Error "A kind that does not exist." {
        "The kind decides which fields an object has. Nothing else of this document is checked."
        wrong object!("Agnet", "name: ada, workspace: core" => "title: Ada" "adapter: echo");
        right agent!("title: Ada" "adapter: echo");
    }
    KindNotSupported "H0204" "kind-not-supported" Error "A kind whose feature does not exist yet." {
        "The name is reserved. It is refused rather than ignored, so that nothing is believed to be in force that is not."
        wrong object!("SandboxPolicy", "name: strict" => "network: deny");
        right "# Left out until a later version supports it.\n";
    }
    StatusInFile "H0205" "status-in-file" Error "A status in a file." {
        "Files say what is wanted; homeostat keeps what it saw in its database and never writes to files."
        wrong fleet!("status: { ready: true }");
        right concat!("# `homeostat get fleets -o yaml` shows the status.\n", fleet!());
    }
    WorkspaceNotAllowed "H0206" "workspace-not-allowed" Error "A workspace on an object of the fleet." {
        "Fleet, Workspace, Adapter and a BudgetPolicy over the fleet belong to the fleet and are used from every workspace."
        wrong object!("Adapter", "name: shell, workspace: core" => "type: command" "command: sh");
        right object!("Adapter", "name: shell" => "type: command" "command: sh");
    }
    WorkspaceMissing "H0207" "workspace-missing" Error "No workspace on an object that belongs to one." {
        "Names are unique within a workspace, so every object that is not the fleet's own names its workspace."
        wrong object!("Agent", "name: ada" => "title: Ada" "adapter: echo");
        right agent!("title: Ada" "adapter: echo");
    }

    UnknownField "H0301" "unknown-field" Error "A field that does not exist." {
        "A field that nothing reads is a typing error or a wish that would silently not be granted. Top-level fields whose names begin with `x-` are yours."
        wrong agent!("title: Ada" "adapter: echo" "modle: small");
        right agent!("title: Ada" "adapter: echo" "model: small");
    }
    MissingField "H0302" "missing-field" Error "A required field that is not there." {
        "There is no sensible default for this field."
        wrong agent!("title: Ada");
        right agent!("title: Ada" "adapter: echo");
    }
    WrongType "H0303" "wrong-type" Error "A value of the wrong type." {
        "Values are not converted: `\"3\"` is text and not a number, `yes` is text and not true."
        wrong agent!("title: Ada" "adapter: echo" "concurrency: \"3\"");
        right agent!("title: Ada" "adapter: echo" "concurrency: 3");
    }
    UnknownValue "H0304" "unknown-value" Error "A word that is not one of the choices." {
        "The field takes one of a fixed set of words."
        wrong object!("Ticket", "name: hello, workspace: core" => "title: Say hello" "space: docs" "priority: hihg");
        right object!("Ticket", "name: hello, workspace: core" => "title: Say hello" "space: docs" "priority: high");
    }
    OutOfRange "H0305" "out-of-range" Error "A number outside its limits." {
        "Every number has a smallest and a largest value."
        wrong agent!("title: Ada" "adapter: echo" "concurrency: 0");
        right agent!("title: Ada" "adapter: echo" "concurrency: 1");
    }
    BadLength "H0306" "bad-length" Error "Text or a list that is too short or too long." {
        "Every text and every list that is kept has limits on its length."
        wrong agent!("title: \"\"" "adapter: echo");
        right agent!("title: Ada" "adapter: echo");
    }
    BadFormat "H0307" "bad-format" Error "Text of the wrong form." {
        "Names, durations, money, branches and addresses have a fixed spelling."
        wrong object!("Agent", "name: Ada_L, workspace: core" => "title: Ada" "adapter: echo");
        right object!("Agent", "name: ada-l, workspace: core" => "title: Ada" "adapter: echo");
    }
    FieldNotSupported "H0308" "field-not-supported" Error "A field whose feature does not exist yet." {
        "The name is reserved. It is refused rather than ignored, so that nothing is believed to be in force that is not."
        wrong agent!("title: Ada" "adapter: echo" "sandboxPolicy: strict");
        right agent!("title: Ada" "adapter: echo" "# Left out until a later version supports it.");
    }
    ValueNotSupported "H0309" "value-not-supported" Error "A value whose feature does not exist yet." {
        "The word is reserved. It is refused rather than read as something weaker."
        wrong object!("Adapter", "name: codex" => "type: codex");
        right object!("Adapter", "name: codex" => "type: command" "command: codex");
    }

    DuplicateObject "H0401" "duplicate-object" Error "The same object twice." {
        "Kind, workspace and name identify an object. Two definitions cannot both hold."
        wrong concat!(agent!("title: Ada" "adapter: echo"), "---\n", agent!("title: Countess" "adapter: echo"));
        right concat!(agent!("title: Ada" "adapter: echo"), "---\n", object!("Agent", "name: countess, workspace: core" => "title: Countess" "adapter: echo"));
    }
    SecondFleet "H0402" "second-fleet" Error "More than one Fleet." {
        "The Fleet holds the settings of the whole; there is one."
        wrong concat!(fleet!(), "---\n", object!("Fleet", "name: other" => "zone: UTC"));
        right object!("Fleet", "name: fleet" => "zone: UTC");
    }
    DuplicateUid "H0403" "duplicate-uid" Error "The same uid on two objects." {
        "`metadata.uid` pins an object's identity over a rename; two objects cannot be the same one."
        wrong concat!(object!("Agent", "name: ada, workspace: core, uid: 6a0b1c9e-4e7a-4b3d-9b1e-0d9a6a6f2d11" => "title: Ada" "adapter: echo"), "---\n", object!("Agent", "name: countess, workspace: core, uid: 6a0b1c9e-4e7a-4b3d-9b1e-0d9a6a6f2d11" => "title: Countess" "adapter: echo"));
        right object!("Agent", "name: countess, workspace: core, uid: 6a0b1c9e-4e7a-4b3d-9b1e-0d9a6a6f2d11" => "title: Countess" "adapter: echo");
    }
    UnknownReference "H0404" "unknown-reference" Error "A reference to an object that is not declared." {
        "References are by name, within the workspace or to an object of the fleet."
        wrong agent!("title: Ada" "adapter: ehco");
        right agent!("title: Ada" "adapter: echo");
    }
    DuplicateEntry "H0405" "duplicate-entry" Error "The same entry twice in a list." {
        "These lists are sets: an entry is in it or not."
        wrong object!("Space", "name: night, workspace: core" => "agents: [writer, writer]");
        right object!("Space", "name: night, workspace: core" => "agents: [writer]");
    }
    UnknownZone "H0406" "unknown-zone" Error "A time zone that does not exist." {
        "Zones are names of the IANA time zone database, which is built into homeostat."
        wrong object!("Fleet", "name: fleet" => "zone: Europe/Berln");
        right object!("Fleet", "name: fleet" => "zone: Europe/Berlin");
    }
    BadCron "H0407" "bad-cron" Error "A cron expression that cannot be read or never comes due." {
        "Five fields: minute, hour, day of month, month, day of week. The zone has a field of its own."
        wrong object!("Schedule", "name: daily, workspace: core" => "agent: writer" "space: docs" "prompt: Look around." "cron: \"0 25 * * *\"");
        right object!("Schedule", "name: daily, workspace: core" => "agent: writer" "space: docs" "prompt: Look around." "cron: \"0 23 * * *\"");
    }
    BadVariable "H0408" "bad-variable" Error "A name that no variable of a run may have." {
        "Variables are letters, digits and `_`, not beginning with a digit. Names that begin with HOMEOSTAT_ are set by homeostat."
        wrong object!("Adapter", "name: shell" => "type: command" "command: sh" "env: { HOMEOSTAT_RUN_ID: \"1\", MY-VAR: \"1\" }");
        right object!("Adapter", "name: shell" => "type: command" "command: sh" "env: { MY_VAR: \"1\" }");
    }
    RepoNotInWorkspace "H0409" "repo-not-in-workspace" Error "A repo that the workspace does not list." {
        "A space may use what its workspace lists, and no more."
        wrong object!("Space", "name: night, workspace: core" => "agents: [writer]" "repos: [site, infra]");
        right object!("Space", "name: night, workspace: core" => "agents: [writer]" "repos: [site]");
    }
    AgentNotInSpace "H0410" "agent-not-in-space" Error "Work for an agent in a space that it does not serve." {
        "An agent works only in spaces whose `agents` name it."
        wrong object!("Ticket", "name: hello, workspace: core" => "title: Say hello" "space: docs" "assignee: reviewer");
        right object!("Ticket", "name: hello, workspace: core" => "title: Say hello" "space: docs" "assignee: writer");
    }
    BadBudgetScope "H0411" "bad-budget-scope" Error "A budget over something that it cannot be over." {
        "A scope other than fleet names its object, in the policy's own workspace. An agent's `budgetPolicy` is one whose scope is that agent."
        wrong object!("BudgetPolicy", "name: ada, workspace: core" => "scope: { kind: agent }" "monthly: \"$5.00\"");
        right object!("BudgetPolicy", "name: ada, workspace: core" => "scope: { kind: agent, name: writer }" "monthly: \"$5.00\"");
    }
    ModeUnmet "H0412" "mode-unmet" Error "An agent that can't hand in what its space's mode asks for." {
        "A mode may owe something (plan: a plan), which agents hand in by a tool. An adapter that can't be given tools can't, and its runs would pass for done without it."
        wrong concat!(agent!("title: Ada" "adapter: echo"), "---\n", object!("Space", "name: night, workspace: core" => "agents: [ada]" "mode: plan"));
        right concat!(object!("Adapter", "name: claude" => "type: claudeCode"), "---\n", agent!("title: Ada" "adapter: claude"), "---\n", object!("Space", "name: night, workspace: core" => "agents: [ada]" "mode: plan"));
    }

    BadAllow "H0501" "bad-allow" Warning "A comment to `validate` that has no effect." {
        "A comment that begins with `homeostat:` lets a finding pass: `allow(CODE) reason`, with the code of a warning and a reason. Errors cannot be let pass: what they leave of a revision cannot be used."
        wrong agent!("title: Ada" "adapter: echo # homeostat: allow(H0404) it is made later");
        right agent!("title: Ada" "adapter: echo");
    }
    UnusedAllow "H0502" "unused-allow" Warning "A comment that lets nothing pass." {
        "Nothing of that code is on the comment's own line, nor, for a comment on a line of its own, on the line below. Left there, it would hide a fault that comes later."
        wrong agent!("# homeostat: allow(H0114) this was a bare yes" "title: Ada" "adapter: echo");
        right agent!("title: Ada" "adapter: echo");
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use strum::IntoEnumIterator;

    use super::*;

    #[test]
    fn identifiers_and_names_are_unique_and_pages_are_whole() {
        let ids: BTreeSet<_> = Code::iter().map(Code::id).collect();
        let slugs: BTreeSet<_> = Code::iter().map(Code::slug).collect();
        assert_eq!(ids.len(), Code::iter().count());
        assert_eq!(slugs.len(), Code::iter().count());
        for code in Code::iter() {
            let page = code.page();
            assert!(page.cause.ends_with('.'), "{}", code.id());
            assert!(!page.wrong.is_empty() && !page.right.is_empty());
            assert_ne!(page.wrong, page.right);
        }
    }
}
