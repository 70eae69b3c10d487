-- The records of a fleet. Operators may query this schema; it is versioned by PRAGMA user_version.
--
-- Conventions
--   * An id is a lower-case UUID with dashes. An id that names an object is its uid (`objects.uid`).
--   * A reference is `Kind/name` or `Kind/workspace/name`.
--   * A time is RFC 3339 text in UTC with exactly six fractional digits, so that text order is time
--     order. Times are for reading: whatever has an order has a sequence (`seq`) that says it.
--   * Money is micro-dollars (1e-6 USD). Unknown money is NULL, never 0.
--   * A flag is 0 or 1. JSON is kept as text.
--   * A closed list is a CHECK; a test holds each to the enum that it spells.
--   * Rows of history name objects by uid without a foreign key: they outlive the object.

-- Desired state ---------------------------------------------------------------------------------

-- Every revision that was looked at, with the latest verdict on it.
CREATE TABLE revisions (
  revision         TEXT    NOT NULL PRIMARY KEY,  -- a commit id, or `sha256:` of a directory
  state            TEXT    NOT NULL CHECK (state IN ('accepted', 'rejected', 'held')),
  seq              INTEGER NOT NULL UNIQUE,       -- rises with every new verdict
  accepted_seq     INTEGER UNIQUE,                -- rises with every acceptance; the highest one serves
  author           TEXT,                          -- of the commit
  committed_at     TEXT,
  decided_at       TEXT    NOT NULL,              -- when the verdict was reached
  message          TEXT,                          -- why it is held
  diagnostics_json TEXT,                          -- why it was rejected
  approved_by      TEXT,                          -- who let a held revision pass
  approved_at      TEXT
) STRICT;

-- The documents of the revision that serves.
CREATE TABLE documents (
  reference TEXT    NOT NULL PRIMARY KEY,
  kind      TEXT    NOT NULL CHECK (kind IN ('Fleet', 'Workspace', 'Repo', 'Adapter', 'BudgetPolicy', 'Agent', 'Space', 'Ticket', 'Dispatch', 'Schedule')),
  workspace TEXT,
  name      TEXT    NOT NULL,
  json      TEXT    NOT NULL,     -- the canonical object, defaults filled in
  spec_hash TEXT    NOT NULL,     -- hex SHA-256 of the canonical spec
  path      TEXT    NOT NULL,     -- where it was written
  line      INTEGER NOT NULL
) STRICT;

-- Identity of every object that ever was. A row with `deleted_at` is a tombstone.
CREATE TABLE objects (
  uid                       TEXT    NOT NULL PRIMARY KEY,
  reference                 TEXT    NOT NULL,
  kind                      TEXT    NOT NULL CHECK (kind IN ('Fleet', 'Workspace', 'Repo', 'Adapter', 'BudgetPolicy', 'Agent', 'Space', 'Ticket', 'Dispatch', 'Schedule')),
  workspace                 TEXT,
  name                      TEXT    NOT NULL,
  generation                INTEGER NOT NULL CHECK (generation >= 1),
  generation_since          TEXT    NOT NULL,  -- when it was accepted
  spec_hash                 TEXT    NOT NULL,
  revision                  TEXT    NOT NULL,  -- the one that brought this generation
  created_at                TEXT    NOT NULL,
  dispatched_generation     INTEGER,           -- Dispatch: the highest that was dispatched
  first_revision_generation INTEGER,           -- run-once kinds: held while it is still this one
  deletion_requested_at     TEXT,              -- no revision declares it any more
  deleted_at                TEXT               -- its finalizers are done
) STRICT;
CREATE UNIQUE INDEX objects_by_reference ON objects (reference) WHERE deleted_at IS NULL;
CREATE INDEX objects_tombstones ON objects (reference, spec_hash) WHERE deleted_at IS NOT NULL;

-- Status ----------------------------------------------------------------------------------------

CREATE TABLE conditions (
  uid                 TEXT    NOT NULL,
  type                TEXT    NOT NULL CHECK (type IN ('Ready', 'Reconciling', 'Stalled', 'Provisioned', 'BudgetOk', 'Paused', 'SandboxActive', 'Dispatching')),
  status              TEXT    NOT NULL CHECK (status IN ('True', 'False', 'Unknown')),
  reason              TEXT    NOT NULL CHECK (reason IN ('AsDeclared', 'Progressing', 'Provisioning', 'ProvisionFailed', 'Deleting', 'DeletionBlocked', 'Waiting', 'Running', 'Idle', 'PausedByGit', 'PausedByOperator', 'TakenOver', 'PausedByBudget', 'Archived', 'Active', 'WithinBudget', 'SoftThreshold', 'Exhausted', 'SandboxNone', 'Estop', 'Suspended', 'Dispatched', 'LastRunFailed', 'Backoff', 'Terminal', 'FirstRevision')),
  message             TEXT    NOT NULL,
  observed_generation INTEGER NOT NULL,
  since               TEXT    NOT NULL,  -- when `status` last changed
  PRIMARY KEY (uid, type)
) STRICT, WITHOUT ROWID;

-- Why something that should happen does not. One current row a subject; the others remember how
-- often each reason was entered while the subject waited.
CREATE TABLE holds (
  subject_kind TEXT    NOT NULL CHECK (subject_kind IN ('wake', 'object')),
  subject      TEXT    NOT NULL,  -- a wake's id, or an object's reference
  reason       TEXT    NOT NULL CHECK (reason IN ('Estop', 'Suspended', 'Draining', 'FirstRevision', 'PausedByGit', 'PausedByOperator', 'TakenOver', 'AgentArchived', 'PausedByBudget', 'BudgetExceeded', 'ModelUnpriced', 'ConversationBusy', 'WorktreeBusy', 'FleetCap', 'WorkspaceCap', 'RepoCap', 'AgentCap', 'NotProvisioned', 'ProvisionFailed', 'Backoff', 'Terminal', 'RunLive', 'Queued', 'PausedByProvider', 'UpstreamRetry')),
  message      TEXT    NOT NULL,
  since        TEXT    NOT NULL,  -- when the reason was last entered
  count        INTEGER NOT NULL,  -- how often it was entered
  is_current   INTEGER NOT NULL CHECK (is_current IN (0, 1)),
  PRIMARY KEY (subject_kind, subject, reason)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX holds_current ON holds (subject_kind, subject) WHERE is_current = 1;

-- Actions that failed lately, by the action's key.
CREATE TABLE backoffs (
  key        TEXT    NOT NULL PRIMARY KEY,
  failures   INTEGER NOT NULL,
  not_before TEXT,                -- NULL: not before the generation changes
  generation INTEGER NOT NULL,
  code       TEXT    NOT NULL,
  message    TEXT    NOT NULL
) STRICT;

-- What operators said. An override that was removed stays as history.
CREATE TABLE overrides (
  seq        INTEGER PRIMARY KEY AUTOINCREMENT,
  id         TEXT    NOT NULL UNIQUE,
  kind       TEXT    NOT NULL CHECK (kind IN ('pause', 'takeover')),
  target     TEXT    NOT NULL,  -- uid: of the agent that is paused, of the space that is taken over
  by         TEXT    NOT NULL,
  reason     TEXT,
  since      TEXT    NOT NULL,
  until      TEXT,              -- NULL: until it is removed
  removed_at TEXT,
  removed_by TEXT
) STRICT;
CREATE INDEX overrides_current ON overrides (target) WHERE removed_at IS NULL;

-- Who did what. Metadata only.
CREATE TABLE audit (
  seq         INTEGER PRIMARY KEY AUTOINCREMENT,
  at          TEXT    NOT NULL,
  actor       TEXT    NOT NULL,
  action      TEXT    NOT NULL,
  subject     TEXT    NOT NULL,
  detail_json TEXT    NOT NULL
) STRICT;

-- Worktrees -------------------------------------------------------------------------------------

-- Working roots of spaces.
CREATE TABLE roots (
  space      TEXT NOT NULL PRIMARY KEY,
  workspace  TEXT NOT NULL,
  path       TEXT NOT NULL,
  phase      TEXT NOT NULL CHECK (phase IN ('provisioning', 'ready', 'reclaiming')),
  created_at TEXT NOT NULL
) STRICT;

-- The directory of each agent beneath a root.
CREATE TABLE overlays (
  space TEXT NOT NULL REFERENCES roots (space) ON DELETE CASCADE,
  agent TEXT NOT NULL,
  path  TEXT NOT NULL,
  PRIMARY KEY (space, agent)
) STRICT, WITHOUT ROWID;

CREATE TABLE worktrees (
  id         TEXT NOT NULL PRIMARY KEY,
  workspace  TEXT NOT NULL,
  space      TEXT NOT NULL,
  repo       TEXT NOT NULL,
  repo_name  TEXT NOT NULL,  -- when it was made
  path       TEXT NOT NULL,
  branch     TEXT NOT NULL,
  base       TEXT,           -- the commit that the branch started from; NULL until it is ready
  backend    TEXT NOT NULL CHECK (backend IN ('reflink', 'git')),
  phase      TEXT NOT NULL CHECK (phase IN ('provisioning', 'ready', 'reclaiming')),
  created_at TEXT NOT NULL,
  UNIQUE (space, repo)
) STRICT;

-- What was saved of worktrees before they went.
CREATE TABLE salvages (
  seq         INTEGER PRIMARY KEY AUTOINCREMENT,
  worktree    TEXT NOT NULL,
  workspace   TEXT NOT NULL,
  space       TEXT NOT NULL,
  repo        TEXT NOT NULL,
  repo_name   TEXT NOT NULL,
  branch      TEXT NOT NULL,
  reference   TEXT NOT NULL,  -- the git ref in the repo's cache
  commit_id   TEXT NOT NULL,
  at          TEXT NOT NULL,
  UNIQUE (worktree, reference)
) STRICT;

-- Conversations and wakes -----------------------------------------------------------------------

CREATE TABLE conversations (
  id         TEXT NOT NULL PRIMARY KEY,  -- the main one has its space's uid
  space      TEXT NOT NULL,
  created_at TEXT NOT NULL
) STRICT;

CREATE TABLE messages (
  seq          INTEGER PRIMARY KEY AUTOINCREMENT,
  id           TEXT NOT NULL UNIQUE,  -- a reply has its run's id
  conversation TEXT NOT NULL REFERENCES conversations (id),
  space        TEXT NOT NULL,
  author_kind  TEXT NOT NULL CHECK (author_kind IN ('human', 'agent', 'system')),
  author       TEXT NOT NULL,         -- a person's name, or an agent's name at the time
  agent        TEXT,                  -- uid, of an agent's message
  text         TEXT NOT NULL,
  run          TEXT,                  -- the run whose reply it is
  requested_by TEXT,
  created_at   TEXT NOT NULL
) STRICT;
CREATE INDEX messages_by_conversation ON messages (conversation, seq);

-- Why agents are woken. The queue is the pending rows, by priority, then sequence.
CREATE TABLE wakes (
  seq               INTEGER PRIMARY KEY AUTOINCREMENT,
  id                TEXT    NOT NULL UNIQUE,
  state             TEXT    NOT NULL CHECK (state IN ('pending', 'claimed', 'finished', 'cancelled')),
  reason            TEXT    NOT NULL CHECK (reason IN ('userMessage', 'assignment', 'pipelineStep', 'childCompleted', 'followUp', 'recovery')),
  workspace         TEXT    NOT NULL,
  agent             TEXT    NOT NULL,
  space             TEXT    NOT NULL,
  conversation      TEXT    NOT NULL,
  ticket            TEXT,
  message           TEXT,
  cause             TEXT,              -- the Dispatch or Schedule
  previous_run      TEXT,
  attempt           INTEGER NOT NULL,
  continuation      TEXT,
  not_before        TEXT,              -- of a next attempt whose provider has to be waited for
  not_before_reason TEXT,
  prompt            TEXT    NOT NULL,
  requested_by      TEXT,
  env_json          TEXT    NOT NULL,
  git_identity_json TEXT,
  priority          TEXT    NOT NULL CHECK (priority IN ('urgent', 'high', 'medium', 'low', 'none')),
  revision          TEXT,
  created_at        TEXT    NOT NULL,
  ended_at          TEXT,              -- when it was finished or cancelled
  because           TEXT,              -- why it was cancelled
  delivery          TEXT    NOT NULL CHECK (delivery IN ('steer', 'followUp', 'interrupt')),
  run_id            TEXT    NOT NULL UNIQUE,  -- that its run has, or would have had
  told_to           TEXT               -- the live run that was told of it instead
) STRICT;
CREATE INDEX wakes_told ON wakes (told_to) WHERE told_to IS NOT NULL;
CREATE INDEX wakes_pending ON wakes (seq) WHERE state = 'pending';
CREATE INDEX wakes_by_cause ON wakes (cause) WHERE cause IS NOT NULL;

-- Requests that were accepted under a caller's key: the same key is answered, not repeated.
CREATE TABLE idempotency_keys (
  key        TEXT NOT NULL PRIMARY KEY,
  message    TEXT,
  wake       TEXT,
  created_at TEXT NOT NULL
) STRICT;

-- Which of its own memories of a conversation an agent's program resumes.
CREATE TABLE sessions (
  conversation TEXT    NOT NULL REFERENCES conversations (id),
  agent        TEXT    NOT NULL,
  adapter      TEXT    NOT NULL CHECK (adapter IN ('command', 'claudeCode')),
  id           TEXT    NOT NULL,  -- the program's own
  told         INTEGER NOT NULL,  -- `seq` of the last message that it was told of; 0: none
  changed_at   TEXT    NOT NULL,
  PRIMARY KEY (conversation, agent)
) STRICT, WITHOUT ROWID;

-- Runs (AgentRunLog) ----------------------------------------------------------------------------

CREATE TABLE runs (
  seq                    INTEGER PRIMARY KEY AUTOINCREMENT,
  id                     TEXT    NOT NULL UNIQUE,
  wake                   TEXT    NOT NULL UNIQUE REFERENCES wakes (id),
  workspace              TEXT    NOT NULL,
  agent                  TEXT    NOT NULL,
  agent_name             TEXT    NOT NULL,  -- names as they were
  agent_title            TEXT    NOT NULL,
  space                  TEXT    NOT NULL,
  space_name             TEXT    NOT NULL,
  conversation           TEXT    NOT NULL REFERENCES conversations (id),
  ticket                 TEXT,
  -- Why and against what.
  wake_reason            TEXT    NOT NULL CHECK (wake_reason IN ('userMessage', 'assignment', 'pipelineStep', 'childCompleted', 'followUp', 'recovery')),
  wake_context_json      TEXT    NOT NULL,  -- the ids that the run was told
  revision               TEXT    NOT NULL,
  generation             INTEGER NOT NULL,  -- the agent's
  retry_of               TEXT,              -- the previous attempt
  attempt                INTEGER NOT NULL,  -- ordinal in the lineage, from 0
  requested_by           TEXT,
  -- How.
  adapter                TEXT    NOT NULL,
  adapter_generation     INTEGER NOT NULL,
  model                  TEXT,              -- that served, as the agent reported it
  credential_source      TEXT    NOT NULL,  -- where the model's credential came from, never its value
  sandbox_state          TEXT    NOT NULL,  -- which backend wraps it
  worktree_backend       TEXT    NOT NULL CHECK (worktree_backend IN ('reflink', 'git')),
  cwd                    TEXT    NOT NULL,
  git_name               TEXT    NOT NULL,
  git_email              TEXT    NOT NULL,
  silence_seconds        INTEGER NOT NULL,
  log_path               TEXT    NOT NULL,
  prompt                 TEXT,              -- exactly as it was sent
  prompt_sha256          TEXT,
  -- What it was to deliver, and what it did.
  mode                   TEXT    NOT NULL CHECK (mode IN ('chat', 'plan')),
  contract               TEXT    CHECK (contract IN ('get_messages', 'remember', 'recall', 'submit_plan')),  -- the verb that hands in what is owed; NULL: nothing is
  output_json            TEXT,              -- what was handed in: the arguments of that call
  -- The process. Stored before the agent is released.
  incarnation            TEXT    NOT NULL,  -- the daemon's life that started it
  pid                    INTEGER,
  process_start_time     INTEGER,           -- clock ticks since boot
  boot_id                TEXT,
  cgroup                 TEXT,
  stop_requested         TEXT    CHECK (stop_requested IN ('agentFinished', 'stoppedByHuman', 'takenOver', 'interrupted', 'estop', 'removed', 'silence', 'budget', 'daemonShutdown', 'daemonLost', 'launchFailed')),
  stop_requested_by      TEXT,
  stop_requested_at      TEXT,
  -- Outcome. `status` alone never proves success: read `liveness`.
  status                 TEXT    NOT NULL CHECK (status IN ('pending', 'running', 'completed', 'error')),
  liveness               TEXT    CHECK (liveness IN ('alive', 'productive', 'completed', 'blocked', 'empty', 'looping', 'failed', 'stalled', 'dead')),
  error_family           TEXT    CHECK (error_family IN ('transientUpstream', 'sandboxInfrastructure', 'budgetExceeded', 'processLost', 'silentRun', 'unknown')),
  error_code             TEXT,
  end_reason             TEXT    CHECK (end_reason IN ('agentFinished', 'stoppedByHuman', 'takenOver', 'interrupted', 'estop', 'removed', 'silence', 'budget', 'daemonShutdown', 'daemonLost', 'launchFailed')),
  exit_code              INTEGER,
  exit_signal            INTEGER,
  summary                TEXT,
  is_retryable           INTEGER NOT NULL DEFAULT 0 CHECK (is_retryable IN (0, 1)),  -- trying again could help
  continuation           TEXT,              -- what a next attempt is told
  -- What the model's provider asked for last; unset by a run that completes.
  provider_until         TEXT,              -- to be left alone until then
  provider_status        INTEGER,           -- of the answer that said so
  provider_is_shared     INTEGER NOT NULL DEFAULT 0 CHECK (provider_is_shared IN (0, 1)),  -- every run of the adapter asks it with that key
  -- Figures.
  input_tokens           INTEGER NOT NULL DEFAULT 0,
  output_tokens          INTEGER NOT NULL DEFAULT 0,
  thought_tokens         INTEGER NOT NULL DEFAULT 0,
  cached_read_tokens     INTEGER NOT NULL DEFAULT 0,
  cached_write_tokens    INTEGER NOT NULL DEFAULT 0,
  reservation_micros     INTEGER CHECK (reservation_micros >= 0),  -- set aside while it is live; NULL: nothing
  reservation_tokens     INTEGER CHECK (reservation_tokens >= 0),  -- set aside while it is live; NULL: nothing
  cost_micros            INTEGER,
  pricing                TEXT    CHECK (pricing IN ('priced', 'unpriced')),  -- NULL while it is live
  price_table            TEXT,                           -- which prices held
  -- Times.
  started_at             TEXT    NOT NULL,  -- the row was written
  released_at            TEXT,              -- the agent was let go
  first_output_at        TEXT,
  last_output_at         TEXT,
  ended_at               TEXT,              -- set: the row is final
  is_settled             INTEGER NOT NULL DEFAULT 0 CHECK (is_settled IN (0, 1)),
  CHECK ((ended_at IS NULL) = (status IN ('pending', 'running'))),
  CHECK ((pricing = 'priced') = (cost_micros IS NOT NULL) OR pricing IS NULL)
) STRICT;
CREATE UNIQUE INDEX runs_live ON runs (conversation) WHERE status IN ('pending', 'running');
CREATE INDEX runs_unsettled ON runs (seq) WHERE status IN ('completed', 'error') AND is_settled = 0;
CREATE INDEX runs_by_agent ON runs (agent, seq);
CREATE INDEX runs_by_space ON runs (space, seq);
CREATE INDEX runs_provider ON runs (provider_until) WHERE provider_until IS NOT NULL;
CREATE INDEX runs_by_lineage ON runs (retry_of) WHERE retry_of IS NOT NULL;

-- The worktrees of a run, before and after.
CREATE TABLE run_trees (
  run            TEXT NOT NULL REFERENCES runs (id),
  worktree       TEXT NOT NULL,
  repo           TEXT NOT NULL,
  repo_name      TEXT NOT NULL,
  path           TEXT NOT NULL,
  branch         TEXT NOT NULL,
  base           TEXT NOT NULL,                             -- where the branch started
  start_head     TEXT,                                      -- before launch; NULL: not looked at
  start_is_dirty INTEGER CHECK (start_is_dirty IN (0, 1)),  -- before launch; NULL: not looked at
  start_dirt     TEXT,                                      -- fingerprint of the dirt; NULL: no dirt
  head           TEXT,                                      -- after the run; NULL: not looked at
  is_dirty       INTEGER CHECK (is_dirty IN (0, 1)),        -- after the run; NULL: not looked at
  dirt           TEXT,                                      -- fingerprint of the dirt; NULL: no dirt
  PRIMARY KEY (run, worktree)
) STRICT, WITHOUT ROWID;

-- Who may write a worktree. A lease lives as long as its run.
CREATE TABLE leases (
  worktree TEXT NOT NULL PRIMARY KEY,
  run      TEXT NOT NULL REFERENCES runs (id),
  taken_at TEXT NOT NULL
) STRICT;

-- What a run emitted, in the order of `seq`.
CREATE TABLE run_events (
  run  TEXT    NOT NULL REFERENCES runs (id),
  seq  INTEGER NOT NULL,
  at   TEXT    NOT NULL,
  type TEXT    NOT NULL CHECK (type IN ('thinking', 'text', 'toolCall', 'toolResult', 'usage', 'error', 'sandboxViolation', 'debug', 'done')),
  json TEXT    NOT NULL,
  PRIMARY KEY (run, seq)
) STRICT, WITHOUT ROWID;
CREATE INDEX run_events_usage ON run_events (run) WHERE type = 'usage';

-- What a run said and did, folded.
CREATE TABLE transcripts (
  run  TEXT NOT NULL PRIMARY KEY REFERENCES runs (id),
  json TEXT NOT NULL
) STRICT;

-- Memory ----------------------------------------------------------------------------------------

-- What agents of a workspace noted for later runs. A fact is never edited: a newer one with its key
-- supersedes it.
CREATE TABLE facts (
  seq           INTEGER PRIMARY KEY AUTOINCREMENT,
  workspace     TEXT    NOT NULL,
  key           TEXT    NOT NULL,
  text          TEXT    NOT NULL,
  agent         TEXT    NOT NULL,
  run           TEXT    NOT NULL REFERENCES runs (id),  -- where it was learned
  superseded_by INTEGER REFERENCES facts (seq),         -- NULL: it is current
  created_at    TEXT    NOT NULL
) STRICT;
CREATE INDEX facts_current ON facts (workspace, key) WHERE superseded_by IS NULL;

CREATE TRIGGER facts_are_never_edited
BEFORE UPDATE OF seq, workspace, key, text, agent, run, created_at ON facts
BEGIN SELECT RAISE(ABORT, 'a fact is never edited'); END;
CREATE TRIGGER facts_are_superseded_once BEFORE UPDATE OF superseded_by ON facts
WHEN OLD.superseded_by IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'the fact is superseded already'); END;

-- The words of the current facts, by `facts.seq`.
CREATE VIRTUAL TABLE fact_words USING fts5 (key, text, tokenize = 'porter unicode61');

-- Work ------------------------------------------------------------------------------------------

CREATE TABLE tickets (
  uid         TEXT    NOT NULL PRIMARY KEY,
  status      TEXT    NOT NULL CHECK (status IN ('backlog', 'open', 'inProgress', 'blocked', 'inReview', 'done', 'failed', 'cancelled')),
  assignee    TEXT,
  assignments INTEGER NOT NULL,  -- how often it was assigned
  changed_at  TEXT    NOT NULL
) STRICT;

CREATE TABLE schedules (
  uid       TEXT NOT NULL PRIMARY KEY,
  last_slot TEXT NOT NULL  -- the last one that fired or was skipped
) STRICT;

-- Money -----------------------------------------------------------------------------------------

-- What each run cost. Append-only.
CREATE TABLE ledger (
  seq                  INTEGER PRIMARY KEY AUTOINCREMENT,
  run                  TEXT    NOT NULL UNIQUE REFERENCES runs (id),
  agent                TEXT    NOT NULL,
  space                TEXT    NOT NULL,
  workspace            TEXT    NOT NULL,
  micros               INTEGER CHECK (micros >= 0),  -- NULL: unpriced
  is_estimated         INTEGER NOT NULL DEFAULT 0 CHECK (is_estimated IN (0, 1)),  -- micros: settled at the reservation
  tokens               INTEGER CHECK (tokens >= 0),  -- in, out, read from and written to a prompt cache; NULL: not known
  are_tokens_estimated INTEGER NOT NULL DEFAULT 0 CHECK (are_tokens_estimated IN (0, 1)),  -- settled at the reservation
  at                   TEXT    NOT NULL              -- of the run's last usage event; of its end if it has none
) STRICT;
CREATE INDEX ledger_by_time ON ledger (at);

CREATE TABLE ledger_repos (
  entry INTEGER NOT NULL REFERENCES ledger (seq),
  repo  TEXT    NOT NULL,
  PRIMARY KEY (entry, repo)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER ledger_is_never_changed BEFORE UPDATE ON ledger
BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER ledger_is_never_deleted BEFORE DELETE ON ledger
BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;

-- Crossings of budgets: one a scope, window and kind.
CREATE TABLE incidents (
  seq            INTEGER PRIMARY KEY AUTOINCREMENT,
  scope_kind     TEXT    NOT NULL CHECK (scope_kind IN ('agent', 'space', 'repo', 'workspace', 'fleet')),
  scope_uid      TEXT    NOT NULL,  -- empty for the fleet
  window         TEXT    NOT NULL,
  kind           TEXT    NOT NULL CHECK (kind IN ('soft', 'hard')),
  workspace      TEXT,
  budget         TEXT    NOT NULL,  -- reference of the policy, or of the agent
  meter          TEXT    NOT NULL CHECK (meter IN ('money', 'tokens')),
  spent          INTEGER NOT NULL,  -- in micro-dollars or tokens
  ceiling        INTEGER NOT NULL,
  at             TEXT    NOT NULL,
  UNIQUE (scope_kind, scope_uid, window, kind)
) STRICT;

CREATE TABLE budget_pauses (
  scope_kind     TEXT    NOT NULL CHECK (scope_kind IN ('agent', 'space', 'repo', 'workspace', 'fleet')),
  scope_uid      TEXT    NOT NULL,  -- empty for the fleet
  window         TEXT    NOT NULL,
  meter          TEXT    NOT NULL CHECK (meter IN ('money', 'tokens')),
  spent          INTEGER NOT NULL,  -- in micro-dollars or tokens
  ceiling        INTEGER NOT NULL,
  since          TEXT    NOT NULL,
  PRIMARY KEY (scope_kind, scope_uid)
) STRICT, WITHOUT ROWID;

-- Events ----------------------------------------------------------------------------------------

-- What happened, for those outside. Written in the transaction that made it happen.
CREATE TABLE outbox (
  seq          INTEGER PRIMARY KEY AUTOINCREMENT,
  type         TEXT NOT NULL CHECK (type IN ('RevisionAccepted', 'RevisionRejected', 'RevisionHeld', 'AgentRunStarted', 'AgentRunCompleted', 'MessageReceived', 'TicketAssigned', 'TicketStatusChanged', 'BudgetThresholdCrossed', 'BudgetPauseLifted', 'SpaceProvisioned', 'SpaceReclaimed')),
  workspace    TEXT,
  subject      TEXT NOT NULL,  -- id of what it happened to
  payload_json TEXT NOT NULL,
  at           TEXT NOT NULL
) STRICT;

-- How far each consumer has come with each event. No row: not tried.
CREATE TABLE deliveries (
  event      INTEGER NOT NULL REFERENCES outbox (seq),
  consumer   TEXT    NOT NULL,
  state      TEXT    NOT NULL CHECK (state IN ('delivered', 'failed')),
  attempts   INTEGER NOT NULL,
  last_error TEXT,
  at         TEXT    NOT NULL,
  PRIMARY KEY (event, consumer)
) STRICT, WITHOUT ROWID;

-- Views for people ------------------------------------------------------------------------------

-- Runs with names, newest first.
CREATE VIEW run_log AS
SELECT id, agent_name AS agent, space_name AS space, wake_reason, attempt, status, liveness,
       error_family, end_reason, summary, cost_micros / 1e6 AS dollars, pricing,
       started_at, ended_at, revision, generation
FROM runs ORDER BY seq DESC;

-- Wakes that wait, with the reason why.
CREATE VIEW queue AS
SELECT w.seq, w.id, w.reason AS wake_reason, o.reference AS agent, w.priority, w.created_at,
       h.reason AS held_by, h.message, h.since, h.count
FROM wakes w
LEFT JOIN objects o ON o.uid = w.agent
LEFT JOIN holds h ON h.subject_kind = 'wake' AND h.subject = w.id AND h.is_current = 1
WHERE w.state = 'pending';

PRAGMA user_version = 1;
