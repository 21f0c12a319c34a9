package deadletter

import (
	"crypto/rand"
	random "math/rand/v2"

	"github.com/google/uuid"

	"holdfast/internal/ledger"
)

// NewFresh makes the random values of new letters: the id, the secret of its tokens, and jitter.
func NewFresh() Fresh {
	return Fresh{
		New: func() (string, []byte) {
			secret := make([]byte, ledger.SecretBytes)
			_, _ = rand.Read(secret) // never fails: it ends the process rather than return too little
			id, err := uuid.NewV7()
			if err != nil {
				id = uuid.New()
			}
			return id.String(), secret
		},
		Jitter: random.Float64,
	}
}
