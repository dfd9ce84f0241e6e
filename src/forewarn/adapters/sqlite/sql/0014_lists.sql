-- Migration 12: lists by what an event is about, however many have ended.

-- What an event has ever named: its VMs, the tags (key=value) that they had when it named them, and
-- who ordered and approved it. Rows only come; they go with their event.
CREATE TABLE event_mention (
    what     TEXT NOT NULL CHECK (what IN ('vm', 'tag', 'by')),
    word     TEXT NOT NULL,
    sequence BIGINT NOT NULL REFERENCES scheduled_event (sequence) ON DELETE CASCADE,
    PRIMARY KEY (what, word, sequence)
);
CREATE INDEX event_mention_of_event ON event_mention (sequence);

-- Of events before this version the tags are those that their VMs have now.
INSERT INTO event_mention (what, word, sequence)
SELECT DISTINCT 'vm', named.value, sequence
  FROM scheduled_event, json_each(scheduled_event.resources) AS named;
INSERT INTO event_mention (what, word, sequence)
SELECT DISTINCT 'tag', json_extract(tag.value, '$[0]') || '=' || json_extract(tag.value, '$[1]'), sequence
  FROM event_mention, vm, json_each(vm.tags) AS tag
 WHERE event_mention.what = 'vm' AND vm.name = event_mention.word;
INSERT INTO event_mention (what, word, sequence)
SELECT 'by', ordered_by, sequence FROM scheduled_event WHERE ordered_by <> ''
 UNION
SELECT 'by', approved_by, sequence FROM scheduled_event WHERE approved_by <> '';

CREATE INDEX scheduled_event_of_host ON scheduled_event (host, sequence);
CREATE INDEX scheduled_event_of_type ON scheduled_event (event_type, sequence);
CREATE INDEX scheduled_event_failed ON scheduled_event (sequence) WHERE phase = 'failed';
CREATE INDEX scheduled_event_canceled ON scheduled_event (sequence) WHERE phase = 'canceled';
CREATE INDEX scheduled_event_of_cause ON scheduled_event (cause, sequence);
CREATE INDEX scheduled_event_of_time ON scheduled_event (scheduled_ms, sequence);

CREATE INDEX operation_of_host ON operation (host, sequence);
CREATE INDEX operation_of_time ON operation (ordered_ms, sequence);

CREATE INDEX journal_of_host ON journal (host, number);
CREATE INDEX journal_of_vm ON journal (vm, number);
CREATE INDEX journal_of_principal ON journal (by_whom, number);
CREATE INDEX journal_of_kind ON journal (kind, number);
CREATE INDEX journal_of_time ON journal (at_ms, number);
