// Package storetest is the conformance suite of ledger.Store and deadletter.Store: the same tests over every database,
// with the expected values taken from the contract and not from the code. Each test has a database and a clock of its
// own; time passes only when a test says so, except where goroutines race.
package storetest

import "testing"

// Open returns the URL of a fresh, empty database that lives as long as the test.
type Open func(tb testing.TB) (url string)

// Run runs the suite over the databases that open makes.
func Run(t *testing.T, open Open) {
	for _, test := range []struct {
		name string
		run  func(*world)
	}{
		{"Decisions", decisions},
		{"KeyReusedInAnyState", keyReused},
		{"PayloadInAnyState", otherPayload},
		{"Reentrant", reentrant},
		{"EntityDecisions", entityDecisions},
		{"Waits", waits},
		{"ClaimByID", claimByID},
		{"KeysAreBytes", keysAreBytes},
		{"PayloadStays", payloadStays},
		{"Complete", completeTable},
		{"MarkUnknown", markUnknownTable},
		{"MarkFailed", markFailedTable},
		{"Extend", extendTable},
		{"ForgedTokens", forgedTokens},
		{"Resolve", resolveTable},
		{"ResolveWindow", resolveWindow},
		{"ResolveTokens", resolveTokens},
		{"ResolveHistory", resolveHistory},
		{"LookTimes", lookTimes},
		{"LookBackoff", lookBackoff},
		{"LookHolder", lookHolder},
		{"LookBatch", lookBatch},
		{"LookWindow", lookWindow},
		{"LookWindowHeld", lookWindowHeld},
		{"NotFoundAfterWindow", notFoundAfterWindow},
		{"Policies", policies},
		{"Sweep", sweep},
		{"SweepManyWindows", sweepManyWindows},
		{"DecisionsNeverDependOnTheSweep", neverOnSweep},
		{"PausesListed", pausesListed},
		{"ClocksApart", clocksApart},
		{"AlertsOfOneGroup", alertsOfOneGroup},
		{"AlertSpacing", alertSpacing},
		{"AlertRetries", alertRetries},
		{"AlertTargets", alertTargets},
		{"AlertText", alertText},
		{"AlertOfReceipts", alertOfReceipts},
		{"AlertOfReviews", alertOfReviews},
		{"AlertOfPauses", alertOfPauses},
		{"Silence", silence},
		{"EntityVersions", entityVersions},
		{"EntityLateReceipt", entityLateReceipt},
		{"EntityReplaced", entityReplaced},
		{"EntityOfOneKey", entityOfOneKey},
		{"EntityLeaseRevived", entityLeaseRevived},
		{"References", references},
		{"ReferenceTaken", referenceTaken},
		{"ListFilters", listFilters},
		{"ListPages", listPages},
		{"HistoryPages", historyPages},
		{"Bytes", exactBytes},
		{"HistoryAppendOnly", historyAppendOnly},
		{"ViewsReadable", viewsReadable},
		{"LimitRate", limitRate},
		{"LimitConcurrency", limitConcurrency},
		{"LimitCircuit", limitCircuit},
		{"LimitAll", limitAll},
		{"LimitLettersRate", limitLettersRate},
		{"LimitLettersConcurrency", limitLettersConcurrency},
		{"LimitLettersCircuit", limitLettersCircuit},
		{"LimitLettersOfWorkflows", limitLettersOfWorkflows},
		{"LetterHousehold", letterHousehold},
		{"LetterOfHandlersEvent", letterOfHandlersEvent},
		{"LetterUndone", letterUndone},
		{"LetterQuiesce", letterQuiesce},
		{"LetterRequeueCompleted", letterRequeueCompleted},
		{"LetterManyEvents", letterManyEvents},
		{"Retention", retention},
		{"RetentionWalks", retentionWalks},
		{"Restart", restart},
		{"Why", why},
		{"LetterDecisions", letterDecisions},
		{"LetterOfRun", letterOfRun},
		{"LetterFields", letterFields},
		{"LetterIdentity", letterIdentity},
		{"LetterDuplicates", letterDuplicates},
		{"LetterRetries", letterRetries},
		{"LetterHandlers", letterHandlers},
		{"LetterFamilies", letterFamilies},
		{"LetterOpenEvents", letterOpenEvents},
		{"LetterTakenOver", letterTakenOver},
		{"LetterCompletedBefore", letterCompletedBefore},
		{"LetterReopened", letterReopened},
		{"LetterWhileLeased", letterWhileLeased},
		{"LetterMarkFailed", letterMarkFailed},
		{"LetterLeaseExpired", letterLeaseExpired},
		{"LetterExpiredThenReported", letterExpiredThenReported},
		{"LetterNeverClaimed", letterNeverClaimed},
		{"LetterSettledLate", letterSettledLate},
		{"LetterEventDone", letterEventDone},
		{"LetterHeld", letterHeld},
		{"LetterOrder", letterOrder},
		{"LetterFilters", letterFilters},
		{"LetterPauses", letterPauses},
		{"LetterOwner", letterOwner},
		{"LetterLeaseEnd", letterLeaseEnd},
		{"LetterDestinations", letterDestinations},
		{"LetterEndings", letterEndings},
		{"LetterPeople", letterPeople},
		{"LetterTokens", letterTokens},
		{"LetterBytes", letterBytes},
		{"LetterRestart", letterRestart},
		{"LetterLists", letterLists},
		{"LetterStats", letterStats},
		{"LetterInputs", letterInputs},
		{"LetterExecutions", letterExecutions},
		{"LetterMarks", letterMarks},
		{"LetterRaceLeases", raceLetterLeases},
		{"LetterRaceReports", raceReports},
		{"LetterRaceFamilies", raceFamilies},
		{"LetterRaceEnds", raceLetterEnds},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(newWorld(t, open))
		})
	}
	for _, test := range []struct {
		name string
		run  func(*testing.T, Open)
	}{
		{"RaceClaims", raceClaims},
		{"RaceLifecycle", raceLifecycle},
		{"RaceEndings", raceEndings},
		{"RaceSweep", raceSweep},
		{"RaceLooks", raceLooks},
		{"RaceEntity", raceEntity},
		{"RaceReferences", raceReferences},
		{"RaceAlerts", raceAlerts},
		{"RaceRate", raceRate},
		{"RaceConcurrency", raceConcurrency},
		{"MigrateTwice", migrateTwice},
		{"MigrateAtOnce", migrateAtOnce},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(t, open)
		})
	}
}
