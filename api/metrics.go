package api

import (
	"strconv"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"holdfast/internal/deadletter"
	"holdfast/internal/ledger"
)

// Metrics counts what happens, for Prometheus. No label ever holds a key, a payload or an id.
type Metrics struct {
	claims   *prometheus.CounterVec
	reports  *prometheus.CounterVec
	letters  *prometheus.GaugeVec
	due      prometheus.Gauge
	replays  *prometheus.GaugeVec
	requests *prometheus.HistogramVec
	batches  *prometheus.HistogramVec
	errors   *prometheus.CounterVec
	held     *prometheus.CounterVec
	alerts   *prometheus.CounterVec
	overdue  prometheus.Gauge
	swept    *prometheus.CounterVec
	open     *prometheus.GaugeVec
	oldest   prometheus.Gauge
	handler  echo.HandlerFunc
}

// NewMetrics makes metrics with a registry of their own.
func NewMetrics() *Metrics {
	m := &Metrics{
		claims:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: "holdfast_claims_total", Help: "Answers of /claim by decision."}, []string{"decision"}),
		reports:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "holdfast_letters_total", Help: "Failures that /dlq took, by class and the status that the letter got; repetitions are not counted."}, []string{"class", "status"}),
		letters:  prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "holdfast_letters", Help: "Dead letters by status, as of the last count."}, []string{"status"}),
		due:      prometheus.NewGauge(prometheus.GaugeOpts{Name: "holdfast_letters_due", Help: "Dead letters that wait for a worker now, as of the last count."}),
		replays:  prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "holdfast_replays_open", Help: "Replays that are not over, by status, as of the last count."}, []string{"status"}),
		requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "holdfast_request_seconds", Help: "Time to answer by route and status.", Buckets: prometheus.ExponentialBuckets(0.0005, 2, 15)}, []string{"method", "route", "status"}),
		batches:  prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "holdfast_batch_size", Help: "Calls that shared one transaction.", Buckets: prometheus.ExponentialBuckets(1, 2, 9)}, []string{"lane"}),
		errors:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: "holdfast_database_errors_total", Help: "Errors of the database by kind."}, []string{"kind"}),
		held:     prometheus.NewCounterVec(prometheus.CounterOpts{Name: "holdfast_destination_waits_total", Help: "Work that had to wait, by destination and the limit that held it: circuit, concurrency or rate."}, []string{"destination", "limit"}),
		alerts:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: "holdfast_alerts_total", Help: "Messages to people by service, and whether it took them: sent or failed."}, []string{"service", "result"}),
		overdue:  prometheus.NewGauge(prometheus.GaugeOpts{Name: "holdfast_leases_overdue", Help: "Leases past their end that still stand, as of the last sweep."}),
		swept:    prometheus.NewCounterVec(prometheus.CounterOpts{Name: "holdfast_swept_total", Help: "Claims that a sweep moved, by the status they got."}, []string{"status"}),
		open:     prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "holdfast_claims", Help: "Claims that wait for their destination's answer (unknown) or for a person (review), as of the last sweep."}, []string{"status"}),
		oldest:   prometheus.NewGauge(prometheus.GaugeOpts{Name: "holdfast_unknown_oldest_seconds", Help: "Age of the oldest unknown claim, as of the last sweep; 0: there is none."}),
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(m.claims, m.reports, m.letters, m.due, m.replays, m.requests, m.batches, m.errors, m.held, m.alerts, m.overdue, m.swept, m.open, m.oldest,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.handler = echo.WrapHandler(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	return m
}

func (m *Metrics) decided(d ledger.Decision) { m.claims.WithLabelValues(string(d)).Inc() }

func (m *Metrics) reported(l *deadletter.Letter) {
	m.reports.WithLabelValues(string(l.Class), string(l.Status)).Inc()
}

// Letters notes how many letters there are, and how many replays are open.
func (m *Metrics) Letters(stats deadletter.Stats) {
	for _, status := range letterStatuses {
		m.letters.WithLabelValues(string(status)).Set(float64(stats.ByStatus[status]))
	}
	m.due.Set(float64(stats.Due))
	for _, status := range replayStatuses {
		if status.Open() {
			m.replays.WithLabelValues(string(status)).Set(float64(stats.Replays[status]))
		}
	}
}

// Alerted counts a message to people.
func (m *Metrics) Alerted(service string, sent bool) {
	result := "failed"
	if sent {
		result = "sent"
	}
	m.alerts.WithLabelValues(service, result).Inc()
}

func (m *Metrics) request(method, route string, status int, took time.Duration) {
	if route == "" {
		method, route = "other", "none" // what nobody serves must not make labels
	}
	m.requests.WithLabelValues(method, route, strconv.Itoa(status)).Observe(took.Seconds())
}

// Batch notes how many calls shared one transaction.
func (m *Metrics) Batch(lane string, size int) {
	m.batches.WithLabelValues(lane).Observe(float64(size))
}

// DatabaseError counts an error of the database.
func (m *Metrics) DatabaseError(kind string) { m.errors.WithLabelValues(kind).Inc() }

// Held counts work that a limit of a destination held back. Only configured destinations have limits.
func (m *Metrics) Held(destination, by string) { m.held.WithLabelValues(destination, by).Inc() }

// Swept notes what a sweep did and found.
func (m *Metrics) Swept(r ledger.SweepReport) {
	m.swept.WithLabelValues(string(ledger.Unknown)).Add(float64(r.Expired))
	m.swept.WithLabelValues(string(ledger.Review)).Add(float64(r.Reviewed))
	m.overdue.Set(float64(r.Overdue))
	m.open.WithLabelValues(string(ledger.Unknown)).Set(float64(r.Unknown))
	m.open.WithLabelValues(string(ledger.Review)).Set(float64(r.InReview))
	m.oldest.Set(r.OldestUnknown.Seconds())
}
