-- Migration 11: public words that have changed (CHANGELOG), where they are kept.
-- The journal: a VM that two hosts report at once.
UPDATE journal SET kind = 'vm-on-two-hosts' WHERE kind = 'vm-twice';
-- Answers that are given again under their key. Within JSON a quote that belongs to a text is escaped,
-- so these are keys and whole values.
UPDATE remembered
   SET answer = replace(replace(answer, '"blind":"', '"hypervisor_unreachable":"'),
                        '"placement":"blind"', '"placement":"hypervisor-unreachable"')
 WHERE answer LIKE '%"blind":"%';
