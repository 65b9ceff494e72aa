"""`verify --deep`: asks the server more than one small question, under a ceiling that was shown before.

What is done and what it may cost is a plan (`plan`, pure); it is carried out (`run`) while somebody looks at the load
(`lookout`); what came of it (`done`) is judged like everything else that `verify` sees (`findings`, pure).
"""
